"""Choices and what comes of them, on the memory store, without gRPC."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from structlog.testing import capture_logs

from extproc.affinity import MemoryStore, Reservation, StoreError
from extproc.pool_settings import PoolSettings, parse
from extproc.processing import DecisionDue, Refusal, Reply, Responded, Session, responded_of
from extproc.replicas.faults import Fault
from extproc.replicas.health import Ejection, Fitness
from extproc.replicas.observation import LEAST_PICKS
from extproc.routing import SHADOW, Decision, Reason, Strategy
from extproc.routing.prefill_rate import TOGETHER
from extproc.server.exchange import Exchange
from extproc.server.router import Router
from extproc.server.stats import Outcome
from tests.server import messages
from tests.server.messages import GET, JSON, chat

A, B, C = "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"
LONG = "All work and no play makes a long prompt. " * 100
STATIC = {"x-prefix-replicas": f"{A},{B},{C}"}
NEVER = 1.0
PICKER = {"x-prefix-protocol": "epp"}


class World:
    """A router on a memory store."""

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        self.store = MemoryStore()
        self.router = Router(self.store, window=512 * 1024, incarnation="00000000")
        self.settings = settings or {}

    async def ask(
        self, body: bytes = b"", headers: dict[str, str] | None = None, **head: Any
    ) -> "Asked":
        """Send a request as far as its choice."""
        exchange = Exchange(self.router, parse(self.settings.items()))
        session = Session(readable=exchange.readable, window=exchange.window)
        headers = headers or (JSON if body else GET)
        first = messages.request_headers(headers, end_of_stream=not body, **head)
        events = session.receive(first)
        if body:
            events += session.receive(messages.request_body(body))
        (due,) = (event for event in events if isinstance(event, DecisionDue))
        answer = await exchange.choose(due)
        refusal = answer if isinstance(answer, Refusal) else None
        replies = [event.message for event in session.decide(answer) if isinstance(event, Reply)]
        ranked = [] if refusal else messages.destinations(replies)
        return Asked(exchange, ranked, messages.facts(replies), refusal)

    async def serve(self, address: str, body: bytes, **head: Any) -> "Asked":
        """Send a request, have it served by a replica, and end it."""
        asked = await self.ask(body, **head)
        await asked.responded(responded(address))
        asked.exchange.end()
        return asked

    def settings_of(self) -> PoolSettings:
        return parse(self.settings.items()).settings

    async def in_flight(self, pool: str = "llm") -> dict[str, int]:
        states = await self.store.snapshot(pool)
        return {address: state.in_flight for address, state in states.items() if state.in_flight}

    async def pending(self, pool: str = "llm") -> int:
        states = await self.store.snapshot(pool)
        return sum(state.pending_tokens for state in states.values())


class Asked:
    def __init__(
        self,
        exchange: Exchange,
        ranked: list[str],
        facts: dict[str, Any],
        refusal: Refusal | None,
    ) -> None:
        self.exchange = exchange
        self.ranked = ranked
        self.facts = facts
        self.refusal = refusal

    async def responded(self, event: Responded) -> None:
        self.exchange.responded(event)
        await self.exchange._router.settle()


def responded(address: str, *, status: int = 200, attempts: int = 1) -> Responded:
    message = messages.response_headers(address, status=status, attempts=attempts)
    attributes: dict[str, Any] = dict(message.attributes[messages.FILTER].items())
    return responded_of(attributes, {":status": [str(status)]})


async def learn(world: World, addresses: list[str], *, pool: str = "llm") -> None:
    """Have Envoy pick until the pool counts as known."""
    for number, address in enumerate(addresses):
        await world.serve(address, chat(f"{number} first {LONG}"), cluster=pool)
    for number in range(LEAST_PICKS):
        await world.serve(addresses[0], chat(f"{number} again {LONG}"), cluster=pool)


@pytest.fixture
def _no_exploring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extproc.replicas.observation.EXPLORED", 0.0)


async def test_equal_prompts_go_to_one_replica() -> None:
    world = World(STATIC)

    first = await world.ask(chat(LONG))
    await first.responded(responded(first.ranked[0]))
    first.exchange.end()
    second = await world.ask(chat(LONG))

    assert first.facts["reason"] == "cold"
    assert second.ranked[0] == first.ranked[0]
    assert second.facts["reason"] == "matched"
    assert second.facts["pool"] == "llm"
    assert second.facts["strategy"] == "kv_aware"
    assert 0 < second.facts["matched_tokens"] <= second.facts["total_tokens"]


async def test_three_replicas_are_ranked() -> None:
    asked = await World(STATIC).ask(chat(LONG))

    assert sorted(asked.ranked) == [A, B, C]


async def test_the_pools_name_comes_from_the_settings_or_the_cluster_or_is_the_default() -> None:
    named = await World({**STATIC, "x-prefix-pool": "gold"}).ask(chat(LONG))
    by_cluster = await World(STATIC).ask(chat(LONG), cluster="silver")
    by_default = await World(STATIC).ask(chat(LONG), cluster="")

    found = [asked.facts["pool"] for asked in (named, by_cluster, by_default)]
    assert found == ["gold", "silver", "default"]


async def test_a_request_is_in_flight_until_its_end() -> None:
    world = World(STATIC)
    asked = await world.ask(chat(LONG))
    assert await world.in_flight() == {asked.ranked[0]: 1}

    await asked.responded(responded(asked.ranked[0]))
    assert await world.in_flight() == {asked.ranked[0]: 1}

    asked.exchange.end()
    asked.exchange.end()
    assert await world.in_flight() == {}
    assert await world.pending() == 0


async def test_a_request_without_a_prompt_goes_to_the_least_loaded() -> None:
    world = World(STATIC)
    busy = await world.ask(chat(LONG))
    also_busy = await world.ask(chat("other " + LONG))
    (free,) = {A, B, C} - {busy.ranked[0], also_busy.ranked[0]}

    asked = await world.ask()

    assert asked.ranked[0] == free
    assert asked.facts["reason"] == "no_prompt"


async def test_requests_without_a_prompt_share_equally_busy_replicas() -> None:
    world = World(STATIC)
    first = set()
    for _ in range(40):
        asked = await world.ask()
        first.add(asked.ranked[0])
        asked.exchange.end()

    assert first == {A, B, C}


async def test_round_robin_takes_turns() -> None:
    world = World({**STATIC, "x-prefix-strategy": "round_robin"})

    chosen = [(await world.ask(chat(LONG))).ranked[0] for _ in range(6)]

    assert chosen == [A, B, C, A, B, C]


async def test_random_spreads_equal_prompts() -> None:
    world = World({**STATIC, "x-prefix-strategy": "random"})

    chosen = {(await world.ask(chat(LONG))).ranked[0] for _ in range(60)}

    assert chosen == {A, B, C}


async def test_prefix_aware_keeps_to_the_start_and_the_aware_id_parts() -> None:
    world = World({**STATIC, "x-prefix-strategy": "prefix_aware", "x-prefix-length": "1024"})
    home = (await world.ask(chat(LONG))).ranked[0]

    same_start = [(await world.ask(chat(LONG + str(n)))).ranked[0] for n in range(10)]
    for name in ("x-prefix-aware-id", "x-amzn-sagemaker-prefix-aware-id"):
        parted = {
            (await world.ask(chat(LONG), {**JSON, name: str(n)})).ranked[0] for n in range(20)
        }
        assert parted == {A, B, C}

    assert set(same_start) == {home}


async def test_tenants_share_nothing() -> None:
    world = World({**STATIC, "x-prefix-tenant-header": "x-tenant"})
    await world.ask(chat(LONG), {**JSON, "x-tenant": "a"})

    other = await world.ask(chat(LONG), {**JSON, "x-tenant": "b"})
    same = await world.ask(chat(LONG), {**JSON, "x-tenant": "a"})

    assert other.facts["reason"] == "cold"
    assert same.facts["matched_tokens"] > 0


@pytest.mark.parametrize("strategy", ["kv_aware", "prefix_aware"])
async def test_a_session_stays_together_without_a_common_prompt(strategy: str) -> None:
    settings = {**STATIC, "x-prefix-session-header": "x-session", "x-prefix-strategy": strategy}
    for session in "abcdef":
        world = World(settings)
        head = {**JSON, "x-session": session}
        first = await world.ask(chat("one " + LONG), head)
        first.exchange.end()

        second = await world.ask(chat("two"), head)

        assert second.ranked[0] == first.ranked[0]
        assert second.facts["reason"] == ("session" if strategy == "kv_aware" else "matched")


SESSIONS = {**STATIC, "x-prefix-session-field": "metadata.session_id"}


async def test_a_field_of_the_body_keeps_a_session_together() -> None:
    world = World(SESSIONS)
    body = {"metadata": {"session_id": "s1"}}
    first = await world.serve(C, chat("one " + LONG, **body))

    again = await world.ask(chat("two", **body))

    assert first.facts["reason"] == "cold"
    assert (again.ranked[0], again.facts["reason"]) == (C, "session")
    assert again.facts["matched_tokens"] == 0  # nothing is cached, so nothing counts as such


async def test_a_much_better_match_outweighs_a_session() -> None:
    world = World(SESSIONS)
    body = {"metadata": {"session_id": "s1"}}
    await world.serve(A, chat("about something else", **body))
    await world.serve(B, chat(LONG))

    matched = await world.ask(chat(LONG, **body))

    assert (matched.ranked[0], matched.facts["reason"]) == (B, "matched")


async def test_what_is_too_much_is_shed_the_lowest_first() -> None:
    limits = {"x-prefix-max-in-flight": "2", "x-prefix-priority-header": "x-priority"}
    world = World(STATIC | PICKER | limits)

    async def reasons(priority: str, count: int) -> list[str]:
        head = {**JSON, "x-priority": priority}
        asked = [await world.ask(chat(f"{priority} {n}"), head) for n in range(count)]
        return [each.refusal.reason if each.refusal else "taken" for each in asked]

    assert await reasons("low", 4) == ["taken"] * 3 + ["shed"]
    assert await reasons("normal", 4) == ["taken"] * 3 + ["shed"]
    assert await reasons("low", 1) == ["shed"]
    assert await reasons("high", 4) == ["taken"] * 3 + ["shed"]
    assert await world.in_flight() == {A: 3, B: 3, C: 3}
    shed = (await world.ask(chat("x"))).refusal
    assert shed is not None
    assert (shed.status, shed.retry_after_s) == (429, 1)
    assert world.router.stats.pools["llm"].rejected == {Reason.SHED: 5}


async def test_without_an_endpoint_picker_envoy_chooses_where_all_are_full() -> None:
    world = World(STATIC | {"x-prefix-max-in-flight": "1"})
    for _ in range(3):
        assert (await world.ask(chat("x"))).ranked

    asked = await world.ask(chat("x"))

    assert (asked.refusal, asked.ranked, asked.facts["reason"]) == (None, [], "shed")


async def test_a_subset_hint_comes_before_the_static_list() -> None:
    asked = await World(STATIC).ask(chat(LONG), subset="10.0.0.9:80")

    assert asked.ranked == ["10.0.0.9:80"]


@pytest.mark.parametrize("subset", ["", [], "10.0.0.99", ["10.0.0.99:80"]])
async def test_a_hint_that_names_nobody_is_refused(subset: str | list[str]) -> None:
    world = World(STATIC | PICKER)

    asked = await world.ask(chat(LONG), subset=subset)

    assert asked.refusal is not None
    assert (asked.refusal.status, asked.refusal.reason) == (503, "no_subset")
    assert asked.facts["reason"] == "no_subset"
    stats = world.router.stats.pools["llm"]
    assert stats.rejected == stats.reasons == {Reason.NO_SUBSET: 1}
    assert stats.total_tokens == 0  # the prompt went to nobody
    asked.exchange.end()
    assert await world.in_flight() == {}


async def test_a_refusal_that_came_too_late_is_none() -> None:
    world = World(STATIC | PICKER)
    asked = await world.ask(chat(LONG), subset="")

    asked.exchange.moot()

    assert not +world.router.stats.pools["llm"].rejected


async def test_a_pool_without_replicas_is_refused() -> None:
    asked = await World(PICKER).ask(chat(LONG))

    assert asked.refusal is not None
    assert (asked.refusal.status, asked.refusal.reason) == (503, "no_replicas")


async def test_an_endpoint_picker_leaves_no_choice_to_envoy_while_it_learns() -> None:
    world = World(PICKER)
    world.store.join("llm", [A, B])

    asked = await world.ask(chat(LONG))

    assert sorted(asked.ranked) == [A, B]


@pytest.mark.parametrize("settings", [{}, PICKER | {"x-prefix-mode": "shadow"}])
@pytest.mark.parametrize("subset", ["", "10.0.0.99"])
async def test_nobody_is_refused_where_envoy_chooses(settings: dict[str, str], subset: str) -> None:
    world = World(STATIC | settings)

    asked = await world.ask(chat(LONG), subset=subset)

    assert (asked.refusal, asked.ranked, asked.facts["reason"]) == (None, [], "no_subset")
    assert not world.router.stats.pools["llm"].rejected


@pytest.mark.parametrize("settings", [{}, PICKER])
async def test_a_hint_limits_the_choice(settings: dict[str, str]) -> None:
    world = World(STATIC | settings)
    for _ in range(3):  # whoever is least busy, it is another
        assert (await world.ask(chat("x"), subset="10.0.0.2:80")).ranked == [B]
        assert (await world.ask(chat("x"), subset="10.0.0.2")).ranked == [B]
    busiest = await world.ask(chat(LONG), subset=["10.0.0.2:80"])
    everyone = await world.ask(chat(LONG))

    assert busiest.ranked == [B]
    assert sorted(everyone.ranked) == [A, B, C]


async def test_an_empty_pool_leaves_the_choice_to_envoy() -> None:
    asked = await World().ask(chat(LONG))

    assert asked.ranked == []
    assert asked.facts["reason"] == "no_replicas"


async def test_affinity_is_with_who_served() -> None:
    world = World(STATIC)
    first = await world.ask(chat(LONG))
    served = first.ranked[1]

    await first.responded(responded(served, attempts=2))
    assert await world.in_flight() == {served: 1}
    first.exchange.end()
    second = await world.ask(chat(LONG))

    assert second.ranked[0] == served
    assert second.facts["reason"] == "matched"
    assert world.router.stats.pools["llm"].outcomes == {Outcome.RETRIED: 1}


@pytest.mark.parametrize("status", [400, 429, 503])
async def test_a_failed_request_leaves_no_affinity(status: int) -> None:
    world = World(STATIC)
    first = await world.ask(chat(LONG))
    await first.responded(responded(first.ranked[0], status=status))
    first.exchange.end()

    assert (await world.ask(chat(LONG))).facts["reason"] == "cold"


async def test_without_the_address_of_who_served_the_choice_counts_and_one_warning_comes() -> None:
    world = World(STATIC)
    with capture_logs() as logs:
        for _ in range(2):
            asked = await world.ask(chat(LONG))
            await asked.responded(responded(""))
            asked.exchange.end()

    assert [log["event"] for log in logs] == ["Envoy does not tell who served"]
    assert "upstream.address" in logs[0]["cure"]
    assert (await world.ask(chat(LONG))).facts["reason"] == "matched"


async def test_outcomes_are_counted() -> None:
    world = World(STATIC)
    for address, attempts in (("first", 1), ("second", 2), ("second", 1), ("", 0)):
        asked = await world.ask(chat(LONG))
        ranked = {"first": asked.ranked[0], "second": asked.ranked[1], "": ""}
        await asked.responded(responded(ranked[address], attempts=attempts))
        asked.exchange.end()

    assert world.router.stats.pools["llm"].outcomes == {
        Outcome.FIRST: 1,
        Outcome.RETRIED: 1,
        Outcome.ELSEWHERE: 1,
        Outcome.NOBODY: 1,
    }


class BrokenStore(MemoryStore):
    async def reserve(self, reservation: Reservation) -> Decision:
        raise StoreError("out of order")


async def test_a_store_that_fails_leaves_the_choice_to_envoy() -> None:
    world = World(STATIC)
    world.router.store = BrokenStore()

    asked = await world.ask(chat(LONG))
    await asked.responded(responded(A))
    asked.exchange.end()

    assert asked.ranked == []
    assert world.router.stats.pools["llm"].reasons == {Reason.FALLBACK: 1}


async def test_a_moot_choice_holds_nothing_and_blames_nobody() -> None:
    world = World()
    await learn(world, [A, B])
    asked = await world.ask(chat(f"0 first {LONG}"))
    assert asked.ranked[0] == A

    asked.exchange.moot()
    assert await world.in_flight() == {}
    await asked.responded(responded(B))

    assert world.store.members("llm") == [A, B]
    assert await world.in_flight() == {B: 1}


async def test_bad_settings_are_counted_each_time_and_the_request_goes_on() -> None:
    world = World({**STATIC, "x-prefix-length": "1", "x-prefix-zzz": "1"})
    for _ in range(3):
        assert (await world.ask(chat(LONG))).ranked

    assert world.router.stats.setting_errors == {"x-prefix-length": 3, "unknown": 3}


async def test_what_could_not_be_read_is_counted() -> None:
    world = World(STATIC)
    await world.ask()

    assert world.router.stats.pools["llm"].problems.total() == 1


# Observation


async def test_envoys_picks_become_members_with_their_affinity() -> None:
    world = World()
    await world.serve(B, chat(LONG))

    asked = await world.ask(chat(LONG))

    assert asked.ranked == [B]
    assert asked.facts["reason"] == "matched"


async def test_a_request_of_envoys_choice_is_in_flight_where_it_is_served() -> None:
    world = World()
    asked = await world.ask(chat(LONG))
    assert await world.in_flight() == {}

    await asked.responded(responded(B))
    assert await world.in_flight() == {B: 1}

    asked.exchange.end()
    assert await world.in_flight() == {}
    assert await world.pending() == 0


async def test_a_response_without_a_body_teaches_affinity_and_holds_nothing() -> None:
    world = World()
    asked = await world.ask(chat(LONG))

    asked.exchange.responded(responded(B))
    asked.exchange.end()
    await world.router.settle()

    assert await world.in_flight() == {}
    assert (await world.ask(chat(LONG))).ranked == [B]


async def test_cold_requests_stay_with_envoy_while_learning() -> None:
    world = World()
    await world.serve(A, chat("other " + LONG))

    asked = await world.ask(chat(LONG))

    assert asked.ranked == []
    assert asked.facts["reason"] == "observing"


@pytest.mark.usefixtures("_no_exploring")
async def test_a_learned_pool_takes_cold_requests() -> None:
    world = World()
    await learn(world, [A, B, C])

    asked = await world.ask(chat("new " + LONG))

    assert sorted(asked.ranked) == [A, B, C]
    assert asked.facts["reason"] == "cold"


@pytest.mark.usefixtures("_no_exploring")
async def test_a_member_that_envoy_passes_over_is_dropped() -> None:
    world = World()
    await learn(world, [A, B])
    asked = await world.ask(chat(f"0 first {LONG}"))
    assert asked.ranked[0] == A

    await asked.responded(responded(B))
    asked.exchange.end()

    assert world.store.members("llm") == [B]
    assert (await world.ask(chat(f"0 first {LONG}"))).ranked == [B]


async def test_a_failed_request_teaches_no_affinity() -> None:
    world = World()
    asked = await world.ask(chat(LONG))
    await asked.responded(responded(A, status=500))
    asked.exchange.end()

    assert world.store.members("llm") == [A]
    assert (await world.ask(chat(LONG))).facts["reason"] == "observing"


# Shadow


async def test_shadow_leaves_the_choice_to_envoy_and_keeps_two_ledgers() -> None:
    world = World({**STATIC, "x-prefix-mode": "shadow"})
    asked = await world.ask(chat(LONG))
    assert asked.ranked == []
    assert asked.facts["reason"] == "cold"
    (ours,) = await world.in_flight("llm" + SHADOW)
    served = next(address for address in (A, B, C) if address != ours)

    await asked.responded(responded(served))
    assert await world.in_flight() == {served: 1}
    assert await world.in_flight("llm" + SHADOW) == {ours: 1}
    asked.exchange.end()

    assert await world.in_flight() == {}
    assert await world.in_flight("llm" + SHADOW) == {}


async def test_shadow_compares_what_would_have_been() -> None:
    world = World({**STATIC, "x-prefix-mode": "shadow"})
    first = await world.ask(chat(LONG))
    (ours,) = await world.in_flight("llm" + SHADOW)
    others = [address for address in (A, B, C) if address != ours]
    await first.responded(responded(others[0]))
    first.exchange.end()
    for address in (others[1], ours):
        await world.serve(address, chat(LONG))

    shadow = world.router.stats.pools["llm"].shadow
    assert (shadow.requests, shadow.agreed) == (3, 1)
    assert shadow.matched_tokens > 0
    assert shadow.served_tokens == 0
    assert shadow.total_tokens > shadow.matched_tokens


async def test_after_shadow_the_real_ledger_is_used() -> None:
    world = World({**STATIC, "x-prefix-mode": "shadow"})
    await world.ask(chat(LONG))
    (ours,) = await world.in_flight("llm" + SHADOW)
    served = next(address for address in (A, B, C) if address != ours)
    await world.serve(served, chat(LONG))

    world.settings = STATIC
    asked = await world.ask(chat(LONG))

    assert asked.ranked[0] == served
    assert asked.facts["reason"] == "matched"


async def test_shadow_learns_the_pool() -> None:
    world = World({"x-prefix-mode": "shadow"})
    await learn(world, [A, B])

    assert world.store.members("llm") == [A, B]
    assert world.router.stats.pools["llm"].shadow.agreed > 0


async def test_the_prefill_rate_is_learned_from_first_choices_that_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(STATIC | {"x-prefix-prefill-rate": "9000"})
    now = 0.0
    monkeypatch.setattr("extproc.server.exchange.monotonic", lambda: now)
    for number in range(260):
        asked = await world.ask(chat(f"{number} " + "x" * 80 * number))
        ours = number % 2 == 0
        await asked.responded(responded(asked.ranked[0 if ours else 1]))
        uncached = asked.facts["total_tokens"] - asked.facts["matched_tokens"]
        now += 0.1 + uncached / 3000 if ours else 5.0
        asked.exchange.end()
        asked.exchange.end()

    learned = world.router.rate("llm", world.settings_of()).tokens_per_second
    assert learned == pytest.approx(3000 * TOGETHER, rel=0.15)
    await world.ask(chat(LONG))
    assert world.router.stats.pool("llm").prefill_rate == learned


class TestHealth:
    """What responses do to the health of replicas."""

    @staticmethod
    async def fail(world: World, chosen: Asked, **event: Any) -> None:
        details = {"details": "via_upstream"} | event
        address = chosen.ranked[0]
        await chosen.responded(Responded(address, 1, details.pop("status", 500), 0, **details))
        chosen.exchange.end()

    async def test_a_replica_that_fails_in_a_row_is_chosen_no_more(self) -> None:
        world = World({**STATIC, "x-prefix-eject-after": "3"})
        body = chat(LONG)
        bad = (await world.ask(body)).ranked[0]
        for _ in range(3):
            asked = await world.ask(body)
            while asked.ranked[0] != bad:  # it holds nothing any more, so others may be chosen
                asked.exchange.end()
                asked = await world.ask(chat(f"{world.router.next_id()} {LONG}"))
            await self.fail(world, asked)
        for number in range(20):
            asked = await world.ask(chat(f"{number} {LONG}"))
            assert bad not in asked.ranked
        assert world.router.stats.pool("llm").ejections == {Fault.ERROR: 1}
        states = world.router.health("llm", [A, B, C])
        assert states[bad].fitness is Fitness.EJECTED

    async def test_who_was_tried_first_failed(self) -> None:
        world = World({**STATIC, "x-prefix-eject-after": "1"})
        asked = await world.ask(chat(LONG))
        first, second, _ = asked.ranked
        await asked.responded(Responded(second, 2, 200, 0, "via_upstream"))
        states = world.router.health("llm", [A, B, C])
        assert states[first].ejection == Ejection(Fault.RETRIED, 1)
        assert states[second].ejection is None

    async def test_shadow_mode_blames_nobody_for_what_was_not_asked(self) -> None:
        world = World({**STATIC, "x-prefix-eject-after": "1", "x-prefix-mode": "shadow"})
        asked = await world.ask(chat(LONG))
        await asked.responded(Responded(B, 3, 200, 0, "via_upstream"))
        assert all(not each.ejection for each in world.router.health("llm", [A, B, C]).values())
        await (await world.ask(chat(LONG))).responded(Responded(B, 1, 500, 0, "via_upstream"))
        assert world.router.health("llm", [A, B, C])[B].ejection == Ejection(Fault.ERROR, 1)


async def test_clusters_beyond_the_limit_are_left_to_envoy() -> None:
    world = World(STATIC)
    world.router._max_pools = 2
    asked = [await world.ask(chat(LONG), cluster=f"from a header {each}") for each in range(4)]
    again = await world.ask(chat(LONG), cluster="from a header 0")

    assert [bool(each.ranked) for each in (*asked, again)] == [True, True, False, False, True]
    assert world.router.stats.limits.reached == {"--max-pools": 2}
    world.settings["x-prefix-pool"] = "named by the configuration"
    assert (await world.ask(chat(LONG))).ranked


_names = st.sampled_from([A, B, C, "10.9.9.9:80", "[::1]:80", "nobody", "", f"{A},10.9.9.9:80"])
_headers = st.dictionaries(
    st.sampled_from(
        [
            "x-gateway-destination-endpoint",
            "x-prefix-replicas",
            "x-prefix-pool",
            "x-prefix-aware-id",
            "x-tenant",
            "host",
        ]
    ),
    st.one_of(_names, st.text(max_size=20)),
)
_replicas = st.lists(st.sampled_from([A, B, C]), min_size=1, unique=True)


@examples(max_examples=100, deadline=None)
@given(members=_replicas, headers=_headers, strategy=st.sampled_from(Strategy), body=st.binary())
def test_no_header_or_body_names_a_replica(
    members: list[str], headers: dict[str, str], strategy: Strategy, body: bytes
) -> None:
    world = World({"x-prefix-replicas": ",".join(members), "x-prefix-strategy": strategy.value})
    world.settings["x-prefix-tenant-header"] = "x-tenant"
    asked = asyncio.run(world.ask(body or b"{", JSON | headers))

    assert asked.ranked
    assert set(asked.ranked) <= set(members)
