"""An Envoy that dies, freezes, and is told of another pool."""

import pytest

from tests.envoy.books import balanced
from tests.envoy.conftest import pool
from tests.envoy.scaling import ScalingStack, scaling
from tests.faults.conftest import Drills
from tests.faults.drills import Outcome
from tests.faults.stack import FaultStack

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]


async def test_envoy_is_killed(stack: FaultStack, drill: Drills) -> None:
    """Without Envoy nobody answers; what it had open is nobody's load any more."""
    allowed = frozenset({Outcome.FAILED, Outcome.CUT})
    async with drill(stack, "the only Envoy is killed, and started", allowed=allowed) as it:
        await stack.envoy.kill()
        await stack.envoy.start()
        await it.mended()
        await it.whole(stack.shared)


async def test_envoy_freezes(stack: FaultStack, drill: Drills) -> None:
    async with drill(stack, "the only Envoy: SIGSTOP, later SIGCONT") as it:
        stack.envoy.pause()
        await it.pauses()
        stack.envoy.resume()
        await it.mended()
        await it.whole(stack.shared)


class Reloaded:
    """A stack whose pool is in a file that Envoy and the router watch."""

    def __init__(self, stack: ScalingStack) -> None:
        self._stack = stack

    @property
    def entrance(self) -> str:
        return self._stack.url("file")

    async def decisions(self) -> list[int]:
        return [(await pool(self._stack, "file")).get("decisions", 0)]

    async def spotless(self) -> bool:
        return await balanced(self._stack)


async def test_the_pool_is_another_one(drill: Drills) -> None:
    async with scaling(["file"], replicas=6) as stack:
        first, second = stack.replicas[:3], stack.replicas[3:]
        words = "Envoy's configuration is replaced: three other replicas, then all six"
        async with drill(Reloaded(stack), words) as it:
            await stack.followed("file", first)
            stack.serve(second)
            await stack.followed("file", second)
            await it.passes()
            stack.serve(stack.replicas)
            await it.mended()
            await stack.followed("file", stack.replicas)
            await it.whole(lambda: all_are_known(stack))


async def all_are_known(stack: ScalingStack) -> bool:
    return set(await stack.healthy("file")) == set(stack.replicas)
