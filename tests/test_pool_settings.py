import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.pool_settings import KEYS, PoolSettings, SettingError, pairs_of, parse
from extproc.prompt.model import ToolsPlace
from extproc.replicas.engine.engines import EnginePolicy
from extproc.replicas.fleet import CheckPolicy
from extproc.replicas.health import HealthPolicy
from extproc.routing import Mode, Policy, Protocol, Strategy

TEXT = st.text(max_size=40)


def test_without_metadata_all_defaults_hold() -> None:
    assert parse(None) == (PoolSettings(), ())
    assert parse([("user-agent", "envoy"), ("x-request-id", "1")]) == (PoolSettings(), ())


def test_every_key_is_read() -> None:
    given_values = {
        "x-prefix-strategy": "prefix_aware",
        "x-prefix-mode": "shadow",
        "x-prefix-protocol": "epp",
        "x-prefix-pool": "llm",
        "x-prefix-length": "1024",
        "x-prefix-concurrency-threshold": "8",
        "x-prefix-replicas": "10.0.0.2:8080,[::1]:80",
        "x-prefix-discovery": "dns://replicas.example:8000",
        "x-prefix-prefill-rate": "5000",
        "x-prefix-uncached-weight": "2.5",
        "x-prefix-decode-weight": "100",
        "x-prefix-bytes-per-token": "3.5",
        "x-prefix-media-tokens": "576",
        "x-prefix-tools": "after_system",
        "x-prefix-ttl": "10m",
        "x-prefix-cache-tokens": "1000000",
        "x-prefix-tenant-header": "X-Tenant",
        "x-prefix-session-header": "X-Session",
        "x-prefix-session-field": "metadata.session_id",
        "x-prefix-session-weight": "2000",
        "x-prefix-max-in-flight": "64",
        "x-prefix-priority-header": "X-Priority",
        "x-prefix-eject-after": "3",
        "x-prefix-eject-time": "20s",
        "x-prefix-slow-start": "1m",
        "x-prefix-hang-after": "2m",
        "x-prefix-health-path": "/health",
        "x-prefix-health-interval": "10",
        "x-prefix-metrics": "/metrics",
        "x-prefix-metrics-interval": "5s",
        "x-prefix-kv-events-port": "5557",
        "x-prefix-kv-events-replay-port": "5558",
        "x-prefix-inspect-window": "64KiB",
        "x-prefix-explain": "on",
        "x-prefix-max-keys": "5000",
    }
    assert given_values.keys() == KEYS.keys()

    found, errors = parse(given_values.items())

    assert errors == ()
    assert found == PoolSettings(
        strategy=Strategy.PREFIX_AWARE,
        mode=Mode.SHADOW,
        protocol=Protocol.EPP,
        pool="llm",
        length=1024,
        concurrency_threshold=8,
        replicas=("10.0.0.2:8080", "[::1]:80"),
        discovery="dns://replicas.example:8000",
        prefill_rate=5000,
        uncached_weight=2.5,
        decode_weight=100,
        bytes_per_token=3.5,
        media_tokens=576,
        tools=ToolsPlace.AFTER_SYSTEM,
        ttl=600,
        cache_tokens=1_000_000,
        tenant_header="x-tenant",
        session_header="x-session",
        session_field="metadata.session_id",
        session_weight=2000,
        max_in_flight=64,
        priority_header="x-priority",
        eject_after=3,
        eject_time=20,
        slow_start=60,
        hang_after=120,
        health_path="/health",
        health_interval=10,
        metrics="/metrics",
        metrics_interval=5,
        kv_events_port=5557,
        kv_events_replay_port=5558,
        inspect_window=65_536,
        explain=True,
        max_keys=5000,
    )
    assert found.engines == EnginePolicy("/metrics", 5, 100, True, 5557, 5558)
    assert found.health == HealthPolicy(3, 20, 60, 120)
    assert found.checks == CheckPolicy("/health", 10)
    assert found.policy == Policy(
        strategy=Strategy.PREFIX_AWARE,
        uncached_milli=2500,
        decode_tokens=100,
        prefill_rate=5000,
        threshold=8,
        ttl_s=600,
        cache_tokens=1_000_000,
        session_tokens=2000,
        max_keys=5000,
    )


def test_blanks_and_empty_items_of_a_list_are_tolerated() -> None:
    found, errors = parse([("x-prefix-replicas", "  10.0.0.2:8080 ,  ,  10.0.0.3:8080  ")])

    assert errors == ()
    assert found.replicas == ("10.0.0.2:8080", "10.0.0.3:8080")


def test_addresses_are_canonical_and_unique() -> None:
    found, _ = parse([("x-prefix-replicas", "[0:0:0:0:0:0:0:1]:80, [::1]:80")])

    assert found.replicas == ("[::1]:80",)


def test_a_bad_value_leaves_its_default_and_only_its() -> None:
    found, errors = parse([("x-prefix-length", "5"), ("x-prefix-decode-weight", "1")])

    assert (found.length, found.decode_weight) == (4096, 1)
    assert errors == (
        SettingError(
            "x-prefix-length",
            "5",
            "Input should be greater than or equal to 1024; the default 4096 holds",
        ),
    )


def test_each_error_names_its_cure() -> None:
    cases = {
        ("x-prefix-strategy", "kvaware"): "'kv_aware', 'prefix_aware'",
        ("x-prefix-replicas", "replica:80"): "'replica:80' is no address: write ip:port",
        ("x-prefix-ttl", "soon"): "write seconds, or a number with s, m, h or d",
        ("x-prefix-inspect-window", "lots"): "write bytes, or a number with KiB",
        ("x-prefix-uncached-weight", "nan"): "finite number",
        ("x-prefix-pool", "a~b"): "without ~",
        ("x-prefix-pool", "p" * 201): "write at most 200 characters",
        ("x-prefix-tenant-header", "x tenant"): "write the name of one request header",
        ("x-prefix-session-header", "x" * 101): "write the name of one request header",
        ("x-prefix-lenght", "4096"): "unknown key, ignored: did you mean x-prefix-length?",
        ("x-prefix-zzz", "1"): "unknown key, ignored: known are x-prefix-bytes-per-token",
    }
    for pair, cure in cases.items():
        found, errors = parse([pair])

        assert found == PoolSettings()
        assert [each.key for each in errors] == [pair[0]]
        assert errors[0].value[:97] == pair[1][:97]
        assert cure in errors[0].cure


def test_what_an_error_shows_is_short_and_printable() -> None:
    _, (error,) = parse([("x-prefix-ttl", "a\n\x1b[31m" + "b" * 10_000)])

    assert error.value.isprintable()
    assert len(error.value) < 200


def test_an_empty_value_means_the_default() -> None:
    assert parse([("x-prefix-length", " ")]) == (PoolSettings(), ())


def test_of_a_repeated_key_the_last_counts() -> None:
    found, _ = parse([("x-prefix-length", "2048"), ("x-prefix-length", "8192")])

    assert found.length == 8192


def test_parsing_is_remembered() -> None:
    pairs = [("x-prefix-length", "2048")]

    assert parse(pairs).settings is parse(list(pairs)).settings


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(sorted(KEYS)) | TEXT.map("x-prefix-".__add__), TEXT)))
def test_no_metadata_raises(pairs: list[tuple[str, str]]) -> None:
    found, errors = parse(pairs)

    assert isinstance(found, PoolSettings)
    assert len(errors) <= len(pairs)


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", ()),
        (" ; ", ()),
        (
            "x-prefix-protocol=epp; x-prefix-discovery = file:///e.yaml?cluster=a ;",
            (("x-prefix-protocol", "epp"), ("x-prefix-discovery", "file:///e.yaml?cluster=a")),
        ),
        (
            "x-prefix-replicas=10.0.0.1:80,[::1]:80",
            (("x-prefix-replicas", "10.0.0.1:80,[::1]:80"),),
        ),
    ],
)
def test_metadata_as_text(text: str, pairs: tuple[tuple[str, str], ...]) -> None:
    assert pairs_of(text) == pairs


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("protocol=epp", "'protocol' is no setting of a pool: write x-prefix-"),
        ("x-prefix-protocol=gie", "x-prefix-protocol: gie: Input should be 'envoy' or 'epp'"),
        ("x-prefix-protocl=epp", "did you mean x-prefix-protocol?"),
    ],
)
def test_text_that_is_no_metadata_says_what_to_write(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        pairs_of(text)


@pytest.mark.parametrize("path", ["a..b", ".a", "a.", "x" * 201])
def test_a_field_is_names_with_dots_between_them(path: str) -> None:
    found, errors = parse([("x-prefix-session-field", path)])

    assert found.session_field == ""
    assert "metadata.session_id" in errors[0].cure
