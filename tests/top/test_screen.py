"""The picture, from made-up facts."""

import io
from typing import Any

import pytest
from rich.console import Console

from extproc.top.screen import clean, line, screen

RECENT: dict[str, Any] = {
    "seconds": 300.0,
    "decisions": 1234,
    "per_s": 4.1,
    "hit_rate": 0.75,
    "best_rate": 0.8,
    "reasons": {"cold": 34, "matched": 1200},
    "start": {"count": 1234, "p50_ms": 40, "p90_ms": 1200},
    "whole": {"count": 0, "p50_ms": None, "p90_ms": None},
    "series": [{"age_s": 5.0, "per_s": 2.0, "hit_rate": None}],
}
REPLICA: dict[str, Any] = {
    "address": "10.0.0.1:8000",
    "in_flight": 3,
    "pending_tokens": 12000,
    "share": 0.5,
    "passed_over": 0,
    "engine": None,
    "health": "healthy",
    "weight": 1.0,
}
PREFIX: dict[str, Any] = {
    "hash": "0123456789abcdef0123456789abcdef",
    "tokens": 8000,
    "requests": 7,
    "replicas": ["10.0.0.1:8000"],
}


def pool(**facts: Any) -> dict[str, Any]:
    return {
        "source": "static",
        "strategy": "kv_aware",
        "mode": "enforce",
        "recent": RECENT,
        "replicas": [REPLICA],
        "prefixes": [PREFIX],
    } | facts


def overview(pools: dict[str, Any], **facts: Any) -> dict[str, Any]:
    return {
        "version": "1.2.3",
        "draining": False,
        "open_streams": 3,
        "streams": 5000,
        "faults": {"errors": {}, "violations": {}, "setting_errors": {}},
        "store": {
            "kind": "redis",
            "shared": True,
            "breaker": "closed",
            "fallbacks": 0,
            "failures": {},
        },
        "pools": pools,
    } | facts


def shown(facts: dict[str, Any], *, pool: str = "", width: int = 100) -> str:
    text = io.StringIO()
    Console(file=text, width=width, color_system=None).print(screen(facts, pool=pool))
    return text.getvalue()


def test_a_pool_with_its_replicas() -> None:
    text = shown(overview({"llm": pool()}))

    rows = [row.split() for row in text.splitlines()]
    assert ["10.0.0.1:8000", "3", "12,000", "50.0%", "healthy"] in rows
    assert ["0123456789ab", "8,000", "7", "10.0.0.1:8000"] in rows
    assert "1,234 requests" in text
    assert "75.0%, 80.0% had load not counted" in text
    assert ["response", "starts", "P50", "40", "ms,", "P90", "1,200", "ms"] in rows
    assert ["whole", "response", "P50", "-,", "P90", "-"] in rows
    assert "matched 1,200, cold 34" in text
    assert "redis store" in text
    assert "bad settings" not in text


def test_the_busiest_pool_comes_first() -> None:
    calm = pool(recent=RECENT | {"per_s": 0.1})
    text = shown(overview({"calm": calm, "busy": pool()}))

    assert text.index("busy") < text.index("calm")


def test_one_pool_alone() -> None:
    both = overview({"gold": pool(), "silver": pool()})

    assert "silver" not in shown(both, pool="gold")
    assert "for the pool lead yet; there are gold, silver" in shown(both, pool="lead")
    assert "No request came yet." in shown(overview({}))


def test_what_is_wrong_is_told() -> None:
    store = {
        "kind": "redis",
        "shared": False,
        "breaker": "open",
        "fallbacks": 7,
        "failures": {"timeout": 9},
    }
    faults = {"errors": {"KeyError": 1}, "violations": {}, "setting_errors": {"x-prefix-ttl": 2}}
    ejected = REPLICA | {"health": "ejected", "weight": 0.0, "fault": "reset", "strikes": 2}
    facts = overview({"llm": pool(replicas=[ejected])}, store=store, faults=faults, draining=True)

    text = shown(facts, width=160)

    for words in (
        "redis store lost: deciding alone",
        "breaker open",
        "draining",
        "decided alone: 7",
        "failed calls: timeout 9",
        "faults of ours: KeyError 1",
        "bad settings: x-prefix-ttl 2",
        "ejected, 0.0%, reset x 2",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("replicas", "words"),
    [(None, "The store does not answer."), ([], "No replica is known.")],
)
def test_a_pool_without_replicas(replicas: Any, words: str) -> None:
    assert words in shown(overview({"llm": pool(replicas=replicas)}))


def test_columns_are_there_where_somebody_has_something_to_tell() -> None:
    told = REPLICA | {"engine": {"kv_permille": 415, "queried_tokens": 9}, "passed_over": 7}
    text = shown(overview({"llm": pool(replicas=[told, REPLICA])}))
    plain = shown(overview({"llm": pool()}))

    rows = [row.split() for row in text.splitlines()]
    assert ["10.0.0.1:8000", "3", "12,000", "50.0%", "7", "41.5%", "healthy"] in rows
    assert ["10.0.0.1:8000", "3", "12,000", "50.0%", "-", "-", "healthy"] in rows
    assert "KV in use" in text
    assert "KV in use" not in plain
    assert "not followed" not in plain


def test_names_are_neither_markup_nor_control_sequences() -> None:
    text = shown(overview({"[red]\x1b[2J\u009b1m": pool(source="[bold]\a")}))

    assert "[red]\N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER}1m" in text
    assert "[bold]\N{REPLACEMENT CHARACTER}" in text
    assert "\x1b" not in text


def test_clean_keeps_what_can_be_printed() -> None:
    assert clean("öl 10.0.0.1:80") == "öl 10.0.0.1:80"


def test_a_line_of_bars() -> None:
    assert line([0.0, 0.5, 1.0, None, 2.0], 1.0) == "▁▅█ █"
