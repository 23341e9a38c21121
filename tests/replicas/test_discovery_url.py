"""Discovery URLs."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.pool_settings import parse
from extproc.replicas.discovery_url import parse_target
from extproc.replicas.target import (
    AdminTarget,
    Asking,
    DnsTarget,
    EdsTarget,
    Family,
    FileTarget,
    SrvTarget,
    Target,
)

DOCUMENT = Path(__file__).parents[2] / "docs" / "discovery.md"


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("envoy-admin://127.0.0.1:9901/llm", AdminTarget("127.0.0.1", 9901, "llm")),
        ("envoy-admin://[::1]:9901/a%20b?interval=500ms", AdminTarget("::1", 9901, "a b", 0.5)),
        ("dns://replicas.example:8000", DnsTarget("replicas.example", 8000)),
        ("dns://replicas.example.:8000/", DnsTarget("replicas.example.", 8000)),
        ("dns://10.0.0.1:80", DnsTarget("10.0.0.1", 80)),
        (
            "dns://llm:80?family=v4_only&server=10.0.0.10:53&interval=2m",
            DnsTarget("llm", 80, Family.V4_ONLY, Asking("10.0.0.10:53", interval_s=120.0)),
        ),
        ("dns+srv://_llm._tcp.example", SrvTarget("_llm._tcp.example")),
        (
            "dns+srv://_llm._tcp.example?server=[0::1]:53",
            SrvTarget("_llm._tcp.example", asking=Asking("[::1]:53")),
        ),
        (
            "dns://llm:80?tcp=true&hold=1m",
            DnsTarget("llm", 80, asking=Asking(tcp=True, hold_s=60.0)),
        ),
        (
            "file:///etc/envoy/envoy.yaml?cluster=llm&interval=3s",
            FileTarget("/etc/envoy/envoy.yaml", "llm", 3.0),
        ),
        ("file:///a%20b.json?cluster=l%2Fm", FileTarget("/a b.json", "l/m")),
        ("eds://control:18000/llm", EdsTarget("control", 18000, "llm")),
        (
            "eds://istiod.istio-system:15010/outbound|80||llm.svc?ads=true&protocol=delta&node=n",
            EdsTarget(
                "istiod.istio-system",
                15010,
                "outbound|80||llm.svc",
                delta=True,
                ads=True,
                node="n",
            ),
        ),
        (
            "eds+tls://control:18000/llm?ca=/ca.pem&cert=/c.pem&key=/k.pem",
            EdsTarget("control", 18000, "llm", True, "/ca.pem", "/c.pem", "/k.pem"),
        ),
    ],
)
def test_what_a_url_means(url: str, target: Target) -> None:
    assert parse_target(url) == target
    assert parse([("x-prefix-discovery", url)]).settings.discovery == url


@pytest.mark.parametrize(
    ("url", "cure"),
    [
        ("llm", "write one of"),
        ("http://127.0.0.1:9901/llm", "envoy-admin://127.0.0.1:9901/cluster"),
        ("dns:host:80", "dns://replicas.example:8000"),
        ("envoy-admin://127.0.0.1/llm", "host and port"),
        ("envoy-admin://127.0.0.1:9901", "a name after the port"),
        ("envoy-admin://:9901/llm", "host and port"),
        ("envoy-admin://me:secret@127.0.0.1:9901/llm", "leave out user"),
        ("dns://llm", "host and port"),
        ("dns://llm:0", "host and port"),
        ("dns://llm:80000", "malformed"),
        ("dns://[::1:80", "malformed"),
        ("dns://-bad-:80", "host and port"),
        ("dns://l..m:80", "host and port"),
        (f"dns://{'a' * 64}:80", "host and port"),
        ("dns://llm:80/path", "nothing follows"),
        ("dns://llm:80?server=localhost:53", "server=ip:port"),
        ("dns://llm:80?family=v5", "v4_preferred"),
        ("dns://llm:80?interval=0s", "100ms"),
        ("dns://llm:80?interval=5", "100ms"),
        ("dns://llm:80?hold=2h", "hold=5s, from 0ms to 60m"),
        ("dns://llm:80?interval=1s&interval=2s", "twice"),
        ("dns://llm:80?colour=red", "known are family"),
        ("dns://llm:80?colour", "name=value"),
        ("dns://llm:80#here", "leave out"),
        ("dns+srv://_llm._tcp.example:80", "the records tell the ports"),
        ("file://etc/envoy.yaml?cluster=llm", "three slashes"),
        ("file:///etc/envoy.yaml", "cluster=name"),
        ("file:///etc/../envoy.yaml?cluster=llm", "no .."),
        ("file:///etc/%00?cluster=llm", "begins with /"),
        ("eds://control:18000/llm?ca=/ca.pem", "unknown parameter 'ca'"),
        ("eds+tls://control:18000/llm?ca=ca.pem", "begins with /"),
        ("eds+tls://control:18000/llm?cert=/c.pem", "both or none"),
        ("eds://control:18000/llm?protocol=rest", "protocol=sotw"),
        ("eds://control:18000/llm?ads=yes", "ads=true"),
        ("dns://ll m:80", "without blanks"),
        ("dns://llm:80?x=" + "y" * 2000, "at most 2000"),
    ],
)
def test_what_a_url_may_not_be(url: str, cure: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse_target(url)
    assert cure in str(caught.value)

    settings_, errors = parse([("x-prefix-discovery", url)])
    assert settings_.discovery == ""
    assert [error.key for error in errors] == ["x-prefix-discovery"]
    assert cure in errors[0].cure


def test_the_urls_of_the_documentation_are_valid() -> None:
    text = DOCUMENT.read_text()
    urls = re.findall(r"`((?:envoy-admin|dns|dns\+srv|file|eds|eds\+tls)://[^`…]+)`", text)
    complete = [url for url in urls if parse([("x-prefix-discovery", url)]).settings.discovery]

    assert {url for url in urls if url not in complete} == {
        "envoy-admin://host:port/cluster?interval=5s",
        "dns://name:port?family=auto&server=10.0.0.10:53&tcp=false&hold=0s&interval=1s",
        "eds://host:port/name?protocol=sotw&ads=false&node=prefix-extproc",
    }
    assert {url.partition(":")[0] for url in complete} == {
        "envoy-admin",
        "dns",
        "dns+srv",
        "file",
        "eds",
    }


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(["envoy-admin", "dns", "dns+srv", "file", "eds", "eds+tls", "x"]),
    st.text(alphabet=st.sampled_from("a:/[]@?=&#%.1 \0_-|é"), max_size=30),
)
def test_no_text_is_a_fault(scheme: str, rest: str) -> None:
    found, errors = parse([("x-prefix-discovery", f"{scheme}://{rest}")])
    assert bool(found.discovery) != bool(errors)
