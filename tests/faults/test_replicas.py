"""Replicas that refuse, break off, hang, lie and restart; and none at all."""

import asyncio
from functools import partial

import pytest

from tests.faults.conftest import Drills
from tests.faults.drills import Outcome
from tests.faults.stack import SETTINGS, FaultStack, replicas
from tests.moody import Mood, MoodyReplica

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]


def victim(stack: FaultStack) -> MoodyReplica:
    return stack.moody[1]


async def serves(stack: FaultStack) -> bool:
    """Whether all routers hold the victim for well."""
    return await stack.health(victim(stack), "healthy", "warming")


async def ejected(stack: FaultStack) -> bool:
    return await stack.health(victim(stack), "ejected")


async def test_a_replica_refuses(stack: FaultStack, drill: Drills) -> None:
    async with drill(stack, "one of four replicas is killed, later started") as it:
        await victim(stack).kill()
        await it.passes()
        await it.until(lambda: ejected(stack))
        await victim(stack).start()
        await it.mended()
        await it.whole(lambda: serves(stack))


@pytest.mark.parametrize(
    ("mood", "fault", "allowed"),
    [
        (Mood.RESET, "a replica resets every connection before it answers", frozenset()),
        (Mood.GARBAGE, "a replica answers what is not HTTP", frozenset()),
        (Mood.CUT, "a replica resets in the middle of its answers", {Outcome.CUT}),
        (Mood.ERRORS, "a replica answers 500 at once", {Outcome.REFUSED}),
        (Mood.SLOW, "a replica takes 3 s instead of nothing", frozenset()),
    ],
    ids=["reset", "garbage", "cut", "errors", "slow"],
)
async def test_a_replica_misbehaves(
    stack: FaultStack, drill: Drills, mood: Mood, fault: str, allowed: frozenset[Outcome]
) -> None:
    async with drill(stack, fault, allowed=frozenset(allowed)) as it:
        victim(stack).mood = mood
        await it.passes()
        victim(stack).mood = Mood.WELL
        await it.mended()
        await it.whole(lambda: serves(stack))


@pytest.mark.parametrize("mood", [Mood.SILENT, Mood.STALLED], ids=["silent", "stalled"])
async def test_a_replica_hangs_and_is_killed(drill: Drills, mood: Mood) -> None:
    words = "no longer answers" if mood is Mood.SILENT else "stalls in the middle of its answers"
    settings = {**SETTINGS, "x-prefix-hang-after": "2s"}
    allowed = frozenset({Outcome.CUT} if mood is Mood.STALLED else ())
    async with (
        replicas() as moody,
        FaultStack(moody, routers=2, settings=settings) as stack,
        drill(stack, f"a replica {words}, is killed, later started", allowed=allowed) as it,
    ):
        victim(stack).mood = mood
        await it.passes()
        if mood is Mood.SILENT:
            await it.until(lambda: ejected(stack))
        await victim(stack).kill()
        victim(stack).mood = Mood.WELL
        await it.passes()
        await victim(stack).start()
        await it.mended()
        await it.whole(lambda: serves(stack))


async def test_replicas_are_restarted_one_by_one(stack: FaultStack, drill: Drills) -> None:
    async with drill(stack, "four replicas are restarted, one after the other") as it:
        for replica in stack.moody:
            await replica.kill()
            await asyncio.sleep(0.3)
            await replica.start()
            await it.passes()
            await it.until(partial(stack.health, replica, "healthy", "warming"))
        await it.mended()
        await it.whole(lambda: serves(stack))


async def test_all_replicas_are_gone(stack: FaultStack, drill: Drills) -> None:
    allowed = frozenset({Outcome.FAILED})
    async with drill(stack, "all replicas are killed, later started", allowed=allowed) as it:
        for replica in stack.moody:
            await replica.kill()
        await asyncio.sleep(1)
        for replica in stack.moody:
            await replica.start()
        await it.mended()
        await it.whole(lambda: serves(stack))
