"""What all exchanges of a process share."""

import asyncio

import pytest
from structlog.testing import capture_logs

from extproc.affinity import MemoryStore
from extproc.pool_settings import PoolSettings, SettingError, parse
from extproc.processing import BodyMode, RequestHead
from extproc.prompt.model import Unreadable
from extproc.replicas.subset import SUBSET_KEY
from extproc.replicas.watch import State
from extproc.server.router import Router, new_incarnation, pool_name, problem_of


def head(headers: dict[str, str] | None = None, **attributes: str) -> RequestHead:
    values = {name: [value] for name, value in (headers or {}).items()}
    named = {key.replace("_", ".", 1): value for key, value in attributes.items()}
    return RequestHead(values, named, {}, BodyMode.BUFFERED_PARTIAL, end_of_stream=False)


def router() -> Router:
    return Router(MemoryStore(), window=1024, incarnation="0a0b0c0d")


def test_ids_are_unique_over_routers() -> None:
    one = router()
    assert [one.next_id() for _ in range(3)] == ["0a0b0c0d-0", "0a0b0c0d-1", "0a0b0c0d-2"]
    assert new_incarnation() != new_incarnation()
    assert len(new_incarnation()) == 8


def test_a_pools_own_window_comes_first() -> None:
    assert router().window(PoolSettings()) == 1024
    assert router().window(PoolSettings(inspect_window=4096)) == 4096


def test_a_bad_setting_is_logged_once_for_each_route_and_counted_each_time() -> None:
    one = router()
    errors = parse([("x-prefix-length", "1")]).errors
    with capture_logs() as logs:
        for route in ("a", "a", "b"):
            one.report(errors, head(xds_route_name=route))

    assert [(log["key"], log["value"], log["route"]) for log in logs] == [
        ("x-prefix-length", "1", "a"),
        ("x-prefix-length", "1", "b"),
    ]
    assert "1024" in logs[0]["cure"]
    assert one.stats.setting_errors == {"x-prefix-length": 3}


def test_what_is_logged_is_bounded() -> None:
    one = router()
    with capture_logs() as logs:
        for number in range(3000):
            one.report([SettingError("x-prefix-ttl", str(number), "cure")], head())

    assert len(logs) == 1000
    assert one.stats.setting_errors == {"x-prefix-ttl": 3000}


def test_observed_pools_are_bounded() -> None:
    one = router()
    first = one.source("first", head(), PoolSettings())
    assert one.source("first", head(), PoolSettings()) is first
    for number in range(1000):
        one.source(f"pool {number}", head(), PoolSettings())

    assert one.source("first", head(), PoolSettings()) is not first


async def test_where_members_come_from() -> None:
    one = router()
    url = "dns://10.0.0.7:80"
    discovered = PoolSettings(discovery=url)
    hint = head()._replace(metadata={"envoy.lb.subset_hint": {SUBSET_KEY: "10.0.0.1:80"}})
    both = PoolSettings(discovery=url, replicas=("10.0.0.2:80",))

    assert one.source("llm", hint, both).name == "subset"
    assert one.source("llm", head(), both).name == "static"
    assert one.discovery.statuses() == {}
    assert one.source("llm", head(), discovered).name == "dns"
    assert one.source("llm", head(), discovered) is one.source("llm", head(), discovered)
    assert one.source("llm", head(), PoolSettings()).name == "observed"
    async with asyncio.timeout(20):
        while one.discovery.statuses()["llm"].state is not State.OK:
            await asyncio.sleep(0.01)
    assert one.source("llm", head(), discovered).candidates().addresses == ("10.0.0.7:80",)
    await one.discovery.close()


def test_what_envoy_gives_comes_before_the_processs_defaults() -> None:
    defaults = (("x-prefix-ttl", "60"), ("x-prefix-protocol", "epp"))
    one = Router(MemoryStore(), window=1, incarnation="00000000", defaults=defaults)

    found = one.settings([("x-prefix-ttl", "30"), ("x-request-id", "1")])

    assert found == parse([("x-prefix-protocol", "epp"), ("x-prefix-ttl", "30")])
    assert one.settings(None).settings.ttl == 60


def test_the_pools_name() -> None:
    assert pool_name(head(), PoolSettings()) == "default"
    assert pool_name(head(xds_cluster_name="llm"), PoolSettings()) == "llm"
    assert pool_name(head(xds_cluster_name="llm"), PoolSettings(pool="gold")) == "gold"


@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        ({":method": "POST", ":path": "/v1/completions", "content-type": "application/json"}, None),
        ({":method": "GET", ":path": "/v1/models"}, Unreadable.NO_BODY),
        (
            {":method": "POST", ":path": "/v1/audio", "content-type": "multipart/form-data"},
            Unreadable.CONTENT_TYPE,
        ),
        (
            {
                ":method": "POST",
                ":path": "/v1/completions",
                "content-type": "application/json",
                "content-encoding": "compress",
            },
            Unreadable.COMPRESSED,
        ),
        ({":method": "GET", ":path": "/v1/realtime", "upgrade": "websocket"}, Unreadable.NO_BODY),
    ],
)
def test_why_a_head_promises_no_prompt(headers: dict[str, str], problem: Unreadable) -> None:
    assert problem_of(head(headers)) == problem
