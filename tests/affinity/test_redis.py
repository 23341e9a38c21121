"""The shared store on a real Valkey: many routers, lost routers, lost data."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest

from extproc.affinity import MemoryStore, RedisStore, Reservation, ResilientStore, StoreError
from extproc.affinity.connect import connect
from extproc.affinity.store import moved
from extproc.routing import Policy, Reason, Strategy, rendezvous
from tests.affinity.test_agreement import REPLICAS, fingerprint
from tests.valkey import Valkey

_serial = itertools.count()
POLICY = Policy(prefill_rate=1, decode_tokens=0)  # pending tokens stay where they are


def reservation(
    pool: str,
    path: tuple[int, ...] | None = (1, 2, 3),
    *,
    policy: Policy = POLICY,
    candidates: list[str] | None = None,
    **options: Any,
) -> Reservation:
    print_ = None if path is None else fingerprint(path)
    return Reservation(
        f"r-{next(_serial)}",
        pool,
        rendezvous(print_.tie if print_ else b"\0" * 16, candidates or REPLICAS),
        policy,
        print_,
        **options,
    )


@pytest.fixture
def pool() -> str:
    return f"pool-{next(_serial)}"


@contextlib.asynccontextmanager
async def router(valkey: Valkey, name: str, **options: Any) -> AsyncIterator[RedisStore]:
    store = RedisStore(connect(valkey.url), router=name, deadline_s=5.0, **options)
    await store.start()
    try:
        yield store
    finally:
        await store.close()


@contextlib.asynccontextmanager
async def resilient(valkey: Valkey, name: str, **options: Any) -> AsyncIterator[ResilientStore]:
    shared = RedisStore(
        connect(valkey.url), router=name, grace_s=0.2, **{"deadline_s": 0.5} | options
    )
    store = ResilientStore(shared, MemoryStore(), heartbeat_s=0.2)
    await store.start()
    try:
        yield store
    finally:
        await store.close()


def forget(store: RedisStore, reservation: Reservation) -> None:
    """Lose a release on its way."""
    del store._holders.pop(reservation.id).held[reservation.id]


async def until(condition: Callable[[], Any], *, seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not await condition():
            await asyncio.sleep(0.05)


async def load(store: RedisStore | ResilientStore, pool: str) -> tuple[int, int]:
    states = (await store.snapshot(pool)).values()
    return sum(each.in_flight for each in states), sum(each.pending_tokens for each in states)


async def test_one_router_knows_what_another_did(shared_valkey: Valkey, pool: str) -> None:
    async with router(shared_valkey, "a") as first, router(shared_valkey, "b") as second:
        cold = await first.reserve(reservation(pool))
        assert cold.reason is Reason.COLD
        warm = await second.reserve(reservation(pool, (1, 2, 3, 4)))
        assert warm.ranked[0] == cold.ranked[0]
        assert (warm.reason, warm.matched_tokens) == (Reason.MATCHED, 192)
        assert len(set(warm.ranked)) == 3


async def test_every_key_ends_and_shares_the_hash_tag(shared_valkey: Valkey, pool: str) -> None:
    pool = f"{pool} }}{{ ü"
    async with router(shared_valkey, "a") as store:
        await store.reserve(reservation(pool, policy=Policy(Strategy.PREFIX_AWARE)))
        await store.sync_all()
        keys = [
            key
            async for key in store._link.client.scan_iter()
            if b"%20%7D%7B%20%C3%BC}:" in key and pool.split(" ")[0].encode() in key
        ]
        assert len(keys) >= 8
        for key in keys:
            assert await store._link.client.ttl(key) > 0, key
            assert key.startswith(b"prefix-extproc:1:{pool-")


async def test_a_router_knows_how_many_there_are(shared_valkey: Valkey, pool: str) -> None:
    async with router(shared_valkey, "a") as first, router(shared_valkey, "b") as second:
        assert first.routers(pool) == 2, "nobody told yet: several"
        for store in (first, second, first):
            await store.reserve(reservation(pool))
            await store.sync_all()
        assert first.routers(pool) == 2
        await first.reserve(reservation(f"{pool}-of-one"))
        await first.sync_all()
        assert first.routers(f"{pool}-of-one") == 1


async def test_a_start_leaves_nothing_for_the_first_request_to_wait_for(valkey: Valkey) -> None:
    async with resilient(valkey, "a") as store:
        link = store._shared._link
        digests = link._scripts._digests.values()
        assert await link.client.script_exists(*digests) == [True] * len(digests)
        assert len(await link.client.client_list()) >= 8


async def test_counts_return_to_zero(shared_valkey: Valkey, pool: str) -> None:
    async with router(shared_valkey, "a") as first, router(shared_valkey, "b") as second:
        made = [reservation(pool, (number % 3, number)) for number in range(60)]
        for store, part in ((first, made[::2]), (second, made[1::2])):
            await asyncio.gather(*(store.reserve(each) for each in part))
        assert (await load(first, pool))[0] == 60
        for store, part in ((first, made[::2]), (second, made[1::2])):
            for number, each in enumerate(part):
                if number % 3 == 0:
                    store.served(each.id, REPLICAS[number % 5], ok=number % 2 == 0)
                store.release(each.id)
                store.release(each.id)
            await store.flush()
        assert await load(first, pool) == await load(second, pool) == (0, 0)


async def test_a_dead_router_is_taken_back(shared_valkey: Valkey, pool: str) -> None:
    async with router(shared_valkey, "alive", silence_s=1) as alive:
        dead = RedisStore(connect(shared_valkey.url), router="dead", deadline_s=5.0)
        for number in range(50):
            await dead.reserve(reservation(pool, (number,)))
        await alive.reserve(reservation(pool, (99,)))
        await dead._link.client.aclose()
        assert (await load(alive, pool))[0] == 51

        async def taken_back() -> bool:
            await alive.sync_all()
            return (await load(alive, pool))[0] == 1

        await until(taken_back)
        assert alive.status().reclaimed == 50


async def test_a_router_that_leaves_takes_its_share_with_it(
    shared_valkey: Valkey, pool: str
) -> None:
    async with router(shared_valkey, "stays") as stays:
        async with router(shared_valkey, "leaves") as leaves:
            await leaves.reserve(reservation(pool))
            assert (await load(stays, pool))[0] == 1
        assert await load(stays, pool) == (0, 0)


async def test_a_lost_release_is_repaired(shared_valkey: Valkey, pool: str) -> None:
    async with router(shared_valkey, "a", grace_s=0.05) as store:
        kept, lost = reservation(pool, (1,)), reservation(pool, (2,))
        await store.reserve(kept)
        await store.reserve(lost)
        forget(store, lost)
        await asyncio.sleep(0.1)
        await store.sync_all()
        assert (await load(store, pool))[0] == 1


async def test_a_young_reservation_is_left_alone(shared_valkey: Valkey, pool: str) -> None:
    """Its reply may be on its way while the router lists what it holds."""
    async with router(shared_valkey, "a", grace_s=60.0) as store:
        young = reservation(pool)
        await store.reserve(young)
        forget(store, young)
        await store.sync_all()
        assert (await load(store, pool))[0] == 1


async def test_an_emptied_store_is_filled_again(valkey: Valkey, pool: str) -> None:
    async with resilient(valkey, "a") as first, resilient(valkey, "b") as second:
        made = [reservation(pool, (number,)) for number in range(50)]
        for number, each in enumerate(made):
            await (first, second)[number % 2].reserve(each)
        valkey.stop()
        valkey.start()

        async def exact() -> bool:
            return first.status().shared and (await load(second, pool))[0] == 50

        await until(exact)
        for number, each in enumerate(made):
            (first, second)[number % 2].release(each.id)

        async def empty() -> bool:
            return await load(first, pool) == (0, 0)

        await until(empty)


async def test_a_lost_store_fails_no_request(valkey: Valkey, pool: str) -> None:
    async with resilient(valkey, "a") as store, resilient(valkey, "b") as other:
        before = await store.reserve(reservation(pool))
        assert before.shared
        valkey.stop()
        during = await store.reserve(reservation(pool, (1, 2, 3, 4)))
        assert not during.shared
        assert during.ranked[0] == before.ranked[0], "the memory is warm"
        learned = await store.reserve(reservation(pool, (7, 7)))
        for _ in range(8):
            await store.reserve(reservation(pool, None))
        assert store.status().breaker == "open"
        assert "memory" in store.status().detail
        valkey.start()

        async def back() -> bool:
            return store.status().shared and other.status().shared

        await until(back)
        after = await other.reserve(reservation(pool, (7, 7, 7)))
        assert after.shared
        assert after.matched_tokens == 128, "what was learned meanwhile was told"
        assert after.ranked[0] == learned.ranked[0]
        assert (await load(other, pool))[0] == 12


async def test_a_silent_store_costs_no_more_than_the_deadline(valkey: Valkey, pool: str) -> None:
    async with resilient(valkey, "a", deadline_s=0.05) as store:
        await store.reserve(reservation(pool))
        valkey.pause()
        for _ in range(8):
            decision = await store.reserve(reservation(pool))
            assert not decision.shared
        assert store.status().failures["timeout"] == 5, "then the breaker was open"
        valkey.resume()

        async def back() -> bool:
            return store.status().shared

        await until(back)

        async def exact() -> bool:
            return (await load(store, pool))[0] == 9

        await until(exact)


async def test_calls_that_fail_together_are_one_failure(
    shared_valkey: Valkey, pool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with resilient(shared_valkey, "a") as store:

        async def stalled(*_: Any) -> Any:
            await asyncio.sleep(0.01)
            raise StoreError("no answer within 10 ms")

        ask = store._shared._reserve
        monkeypatch.setattr(store._shared, "_reserve", stalled)
        for _ in range(4):
            await asyncio.gather(*(store.reserve(reservation(pool)) for _ in range(50)))
        assert store.status().breaker == "closed"
        monkeypatch.setattr(store._shared, "_reserve", ask)
        assert (await store.reserve(reservation(pool))).shared
        monkeypatch.setattr(store._shared, "_reserve", stalled)
        for _ in range(5):
            assert store.status().breaker == "closed"
            await store.reserve(reservation(pool))
        assert store.status().breaker == "open"


async def test_absent_at_start_is_no_error(valkey: Valkey, pool: str) -> None:
    valkey.stop()
    async with resilient(valkey, "a") as store:
        assert not store.status().shared
        assert (await store.reserve(reservation(pool))).ranked
        valkey.start()

        async def back() -> bool:
            return store.status().shared and (await load(store, pool))[0] == 1

        await until(back)


async def test_without_a_fallback_the_caller_is_told(valkey: Valkey, pool: str) -> None:
    async with router(valkey, "a") as store:
        valkey.stop()
        with pytest.raises(StoreError):
            await store.reserve(reservation(pool))


async def test_a_release_while_another_pool_is_synchronized(
    shared_valkey: Valkey, pool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is told of a pool is what is held by then."""
    async with router(shared_valkey, "a") as store:
        released = reservation(f"{pool}-2")
        await store.reserve(reservation(pool))
        await store.reserve(released)
        run = store._link.run

        async def release_first(script: str, keys: Any, args: Any) -> Any:
            if script == "sync" and released.id in store._holders:
                store.release(released.id)
                await store.flush()
            return await run(script, keys, args)

        monkeypatch.setattr(store._link, "run", release_first)
        for each in store._pools.values():
            each.dirty = True
        await store.sync_all()

        async def empty() -> bool:
            return await load(store, f"{pool}-2") == (0, 0)

        await until(empty, seconds=5)


async def test_news_of_a_released_reservation_do_not_hold_it_again(
    shared_valkey: Valkey, pool: str
) -> None:
    async with router(shared_valkey, "a") as store:
        made = reservation(pool)
        chosen = (await store.reserve(made)).ranked[0]
        elsewhere = next(each for each in REPLICAS if each != chosen)
        store.suspend()
        store.served(made.id, elsewhere, ok=True)
        store.release(made.id)
        await store.sync_all()
        store.resume()
        await store.flush()

        async def told() -> bool:
            asked = reservation(pool, candidates=[elsewhere], hold=False, matched_only=True)
            return (await store.reserve(asked)).ranked == (elsewhere,)

        await until(told, seconds=5)
        assert await load(store, pool) == (0, 0)


async def test_a_router_taken_for_dead_can_die_again(shared_valkey: Valkey, pool: str) -> None:
    async with router(shared_valkey, "alive", silence_s=1) as alive:
        dead = RedisStore(connect(shared_valkey.url), router="dead", deadline_s=5.0)
        await dead.reserve(reservation(pool, (1,)))
        await alive.reserve(reservation(pool, (2,), hold=False))

        async def taken_back() -> bool:
            await alive.sync_all()
            return (await load(alive, pool))[0] == 0

        await until(taken_back)
        await dead.reserve(reservation(pool, (3,)))
        assert (await load(alive, pool))[0] == 1
        await dead._link.client.aclose()
        await until(taken_back)


async def test_an_answer_that_came_too_late_is_corrected(
    shared_valkey: Valkey, pool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store chose, but the router has decided alone: that is what counts."""
    async with router(shared_valkey, "b") as other:
        shared = RedisStore(connect(shared_valkey.url), router="a", deadline_s=5.0)
        store = ResilientStore(shared, MemoryStore(), heartbeat_s=60.0)
        await store.start()
        asked = reservation(pool, (1, 2))
        theirs, ours = asked.candidates[:2]
        store._local.reserve_now(replace(moved(asked, ours), id="warm", hold=False))
        ask = shared._reserve

        async def late(*args: Any) -> Any:
            monkeypatch.setattr(shared, "_reserve", ask)
            assert shared._pools[pool].names((await ask(*args))[3:4]) == (theirs,)
            raise StoreError("no answer within 10 ms")

        monkeypatch.setattr(shared, "_reserve", late)
        decision = await store.reserve(asked)
        assert (decision.ranked[0], decision.shared) == (ours, False)

        async def corrected() -> bool:
            look = reservation(pool, (1, 2, 3), hold=False, matched_only=True)
            return (await other.reserve(look)).ranked[:1] == (ours,)

        await until(corrected, seconds=5)
        states = await other.snapshot(pool)
        assert {name: state.in_flight for name, state in states.items() if state.in_flight} == {
            ours: 1
        }
        look = reservation(pool, (1, 2, 4), candidates=[theirs], hold=False)
        assert (await other.reserve(look)).reason is Reason.COLD
        store.release(asked.id)

        async def empty() -> bool:
            return await load(other, pool) == (0, 0)

        await until(empty, seconds=5)
        await store.close()


async def test_an_outage_teaches_who_served(valkey: Valkey, pool: str) -> None:
    async with resilient(valkey, "a") as store, resilient(valkey, "b") as other:
        valkey.stop()
        moved, failed = reservation(pool, (1, 1)), reservation(pool, (2, 2))
        chosen = (await store.reserve(moved)).ranked[0]
        elsewhere = next(each for each in REPLICAS if each != chosen)
        await store.reserve(failed)
        store.served(moved.id, elsewhere, ok=True)
        store.served(failed.id, "", ok=False)
        for each in (moved, failed):
            store.release(each.id)
        for _ in range(5):
            await other.reserve(reservation(pool, None, hold=False))
        valkey.start()

        async def back() -> bool:
            return store.status().shared and other.status().shared

        await until(back)
        again = await other.reserve(reservation(pool, (1, 1, 1)))
        assert (again.ranked[0], again.matched_tokens) == (elsewhere, 128)
        unseen = reservation(pool, (1, 1, 2), candidates=[chosen])
        assert (await other.reserve(unseen)).reason is Reason.COLD
        assert (await other.reserve(reservation(pool, (2, 2, 2)))).reason is Reason.COLD


async def test_a_recycled_index_is_told(shared_valkey: Valkey, pool: str) -> None:
    async with router(shared_valkey, "a") as first, router(shared_valkey, "b") as second:
        alone = reservation(pool, (1, 2), candidates=["10.1.0.1:80"], hold=False)
        await first.reserve(alone)
        await second.reserve(reservation(pool, (1,), candidates=["10.1.0.1:80"], hold=False))
        first.leave(pool, "10.1.0.1:80")
        await first.flush()
        await first.reserve(reservation(pool, (3,), candidates=["10.1.0.2:80"]))
        # The second router still believes that the index is the former replica's.
        again = await second.reserve(reservation(pool, (1, 2), candidates=["10.1.0.1:80"]))
        assert again.reason is Reason.COLD
        states = await second.snapshot(pool)
        assert {name: state.in_flight for name, state in states.items()} == {
            "10.1.0.1:80": 1,
            "10.1.0.2:80": 1,
        }


async def test_a_burst_at_many_routers_takes_no_more_than_the_limit(
    shared_valkey: Valkey, pool: str
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        stores = [
            await stack.enter_async_context(router(shared_valkey, f"{pool}-{name}"))
            for name in range(3)
        ]
        asked = [reservation(pool, (each,), max_in_flight=2) for each in range(60)]
        decisions = await asyncio.gather(
            *(stores[number % 3].reserve(each) for number, each in enumerate(asked))
        )
        taken = [decision for decision in decisions if decision.ranked]
        assert len(taken) == 2 * len(REPLICAS)
        assert {decision.reason for decision in decisions if not decision.ranked} == {Reason.SHED}
        states = await stores[0].snapshot(pool)
        assert {state.in_flight for state in states.values()} == {2}


async def test_a_session_is_known_to_all_routers_and_follows_who_served(
    shared_valkey: Valkey, pool: str
) -> None:
    session = b"s" * 16
    async with (
        router(shared_valkey, f"{pool}-a") as one,
        router(shared_valkey, f"{pool}-b") as two,
    ):
        first = reservation(pool, (1,), session=session)
        asked = (await one.reserve(first)).ranked
        one.served(first.id, asked[1], ok=True)
        await one.flush()
        again = await two.reserve(reservation(pool, (2,), session=session))
        assert (again.ranked[0], again.reason) == (asked[1], Reason.SESSION)

        failed = reservation(pool, None, session=b"t" * 16)
        await one.reserve(failed)
        one.served(failed.id, "", ok=False)
        await one.flush()
        other = await two.reserve(reservation(pool, (3,), session=b"t" * 16))
        assert other.reason is Reason.COLD
