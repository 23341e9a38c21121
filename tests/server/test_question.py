"""What the store is asked."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.pool_settings import PoolSettings
from extproc.processing import BodyMode, DecisionDue, RequestHead
from extproc.prompt.model import Fingerprint, Prompt, ToolsPlace, Unreadable
from extproc.routing import Strategy, rendezvous
from extproc.server.question import (
    fingerprint_of,
    in_order,
    limit_for,
    prompt_of,
    session_key,
    with_session,
)

ADDRESSES = tuple(f"10.0.0.{number}:80" for number in range(1, 8))
FOUND = Fingerprint((256,), (b"h" * 16,), (64,), 100, b"t" * 16, b"s" * 16)


WINDOW = 1 << 16


def due(body: bytes, *, complete: bool = True, **headers: str) -> DecisionDue:
    named = {name.replace("_", "-"): [value] for name, value in headers.items()}
    fixed = {
        ":method": ["POST"],
        ":path": ["/v1/completions"],
        "content-type": ["application/json"],
    }
    head = RequestHead(fixed | named, {}, {}, BodyMode.STREAMED, end_of_stream=False)
    return DecisionDue(head, body, complete)


def asked(question: DecisionDue, pool: PoolSettings | None = None) -> Fingerprint:
    pool = pool or PoolSettings()
    prompt = prompt_of(question, pool, WINDOW)
    assert isinstance(prompt, Prompt)
    return fingerprint_of(prompt, question, pool, "llm")


def test_the_order_is_the_strategys() -> None:
    assert in_order(ADDRESSES[::-1], Strategy.ROUND_ROBIN, FOUND) == ADDRESSES
    assert in_order(ADDRESSES, Strategy.KV_AWARE, FOUND) == rendezvous(FOUND.tie, ADDRESSES)
    assert in_order(ADDRESSES, Strategy.PREFIX_AWARE, FOUND) == rendezvous(FOUND.sticky, ADDRESSES)


@pytest.mark.parametrize("strategy", [Strategy.RANDOM, Strategy.LEAST_OUTSTANDING_REQUESTS])
def test_the_order_is_random_where_no_prompt_counts(strategy: Strategy) -> None:
    orders = {in_order(ADDRESSES, strategy, FOUND) for _ in range(50)}
    without = {in_order(ADDRESSES, Strategy.KV_AWARE, None) for _ in range(50)}

    assert len(orders) > 10
    assert len(without) > 10


@given(st.sampled_from(Strategy), st.permutations(ADDRESSES))
@settings(max_examples=50, deadline=None)
def test_the_order_loses_nobody(strategy: Strategy, addresses: list[str]) -> None:
    assert sorted(in_order(tuple(addresses), strategy, FOUND)) == sorted(ADDRESSES)


def test_a_cut_bodys_tokens_come_from_its_declared_length() -> None:
    body = json.dumps({"model": "m", "prompt": "x" * 8000}).encode()
    whole = asked(due(body))

    cut = asked(due(body[:4000], complete=False, content_length=str(len(body))))
    undeclared = asked(due(body[:4000], complete=False))

    assert abs(cut.total_tokens - whole.total_tokens) < 20
    assert undeclared.total_tokens < 1010


def test_a_declared_length_is_believed_only_so_far() -> None:
    body = json.dumps({"prompt": "x" * 8000}).encode()[:4000]

    found = asked(due(body, complete=False, content_length="9" * 18))

    assert found.total_tokens <= 64 * 1024 * 1024 // 4


def test_a_complete_bodys_declared_length_counts_for_nothing() -> None:
    body = json.dumps({"prompt": "x" * 8000}).encode()

    assert asked(due(body, content_length="99999")) == asked(due(body))


def test_what_parts_equal_prompts() -> None:
    body = json.dumps({"prompt": "x" * 8000}).encode()
    plain = asked(due(body))
    tenants = PoolSettings(tenant_header="x-tenant")

    assert asked(due(body, x_tenant="a"), tenants).hashes != plain.hashes
    assert asked(due(body, x_tenant="a")).hashes == plain.hashes
    assert asked(due(body, x_prefix_aware_id="a")).sticky != plain.sticky
    assert asked(due(body, x_prefix_aware_id="a")).hashes == plain.hashes


@pytest.mark.parametrize("place", ToolsPlace)
def test_the_place_of_tools_is_the_pools(place: ToolsPlace) -> None:
    messages = [{"role": "system", "content": "be terse"}, {"role": "user", "content": "hi"}]
    body = json.dumps({"messages": messages, "tools": [{"name": "f"}]}).encode()
    fixed = {":method": ["POST"], ":path": ["/v1/chat/completions"]}
    head = RequestHead(fixed, {}, {}, BodyMode.STREAMED, end_of_stream=False)

    prompt = prompt_of(DecisionDue(head, body, complete=True), PoolSettings(tools=place), WINDOW)

    assert isinstance(prompt, Prompt)
    tools_are_first = prompt.content.index(b'{"name":"f"}') < prompt.content.index(b"be terse")
    assert tools_are_first == (place is ToolsPlace.FIRST)


SESSIONS = PoolSettings(session_header="x-session", session_field="user")


def session(body: bytes = b'{"prompt": "x"}', *, pool: str = "llm", x_session: str = "") -> bytes:
    question = due(body, x_session=x_session)
    prompt = prompt_of(question, SESSIONS, WINDOW)
    assert isinstance(prompt, Prompt)
    return session_key(prompt, question.head, SESSIONS, pool)


def test_a_session_breaks_ties_and_is_no_checkpoint() -> None:
    key = session(x_session="s1")
    found = with_session(FOUND, key)

    assert (found.hashes, found.tokens, found.total_tokens) == (
        FOUND.hashes,
        FOUND.tokens,
        FOUND.total_tokens,
    )
    assert found.tie == found.sticky == key
    assert in_order(ADDRESSES, Strategy.KV_AWARE, None, key) == rendezvous(key, ADDRESSES)


def test_sessions_differ_by_name_and_by_pool() -> None:
    keys = {
        session(x_session=name, pool=pool)
        for name in ("a", "b", "\udcff")
        for pool in ("llm", "gold")
    }
    assert len(keys) == 6


def test_sessions_differ_by_tenant() -> None:
    shared = PoolSettings(session_header="x-session", tenant_header="x-tenant")
    keys = {
        session_key(None, due(b"", x_session="s", x_tenant=tenant).head, shared, "llm")
        for tenant in ("a", "b")
    }
    assert len(keys) == 2


def test_the_header_comes_before_the_field() -> None:
    body = b'{"prompt": "x", "user": "u1"}'

    assert session(body) == session(x_session="u1")
    assert session(body, x_session="s1") == session(x_session="s1")
    assert session(b'{"prompt": "x"}') == b""


def test_the_limit_is_that_of_the_priority() -> None:
    pool = PoolSettings(max_in_flight=8, priority_header="x-priority")

    limits = {name: limit_for(due(b"", x_priority=name).head, pool) for name in ("low", "", "3")}

    assert limits == {"low": 4, "": 8, "3": 12}
    equal = PoolSettings(max_in_flight=8)
    assert limit_for(due(b"", x_priority="low").head, equal) == 8
    assert limit_for(due(b"", x_priority="high").head, PoolSettings()) == 0


def test_an_unreadable_body_says_why() -> None:
    assert prompt_of(due(b""), PoolSettings(), WINDOW) is Unreadable.NO_BODY
