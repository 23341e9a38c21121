"""The stack that drills break, and the table of what they found."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
import pytest_asyncio

from tests.envoy.books import until
from tests.faults.drills import LIMIT_S, Drill, Load, Outcome, Row, table
from tests.faults.stack import POOL, FaultStack, replicas
from tests.moody import Mood

Drills = Callable[..., AbstractAsyncContextManager[Drill]]
"""``drill(stack, "the fault", allowed={...})``: traffic, and at its end the verdict."""

_ROWS = pytest.StashKey[list[Row]]()


@pytest.fixture
def drill(request: pytest.FixtureRequest) -> Drills:
    load = Load(
        request.config.getoption("--drill-rate"), request.config.getoption("--drill-seconds")
    )
    rows = request.config.stash.setdefault(_ROWS, [])

    @asynccontextmanager
    async def run(
        stack: FaultStack, fault: str, *, allowed: frozenset[Outcome] = frozenset()
    ) -> AsyncIterator[Drill]:
        """Traffic around a fault.

        It fails where a request had an outcome that is not allowed, and where something is left.
        """
        row = Row(request.node.name, fault, load.rate)
        made = Drill(stack.url(POOL), load, row, stack.decisions)
        async with made.flowing():
            await made.passes()
            yield made
            await made.passes()
        rows.append(row)
        fine = {Outcome.ANSWERED, *allowed}
        assert not row.outcomes.keys() - fine, made.broken[:10]
        assert row.whole_s >= 0
        await until(stack.spotless, LIMIT_S)

    return run


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def fault_stack() -> AsyncIterator[FaultStack]:
    async with replicas() as moody, FaultStack(moody) as stack:
        yield stack


@pytest_asyncio.fixture(loop_scope="session")
async def stack(fault_stack: FaultStack) -> AsyncIterator[FaultStack]:
    """The stack of all drills; each has to leave it as it was."""
    yield fault_stack
    for replica in fault_stack.moody:
        replica.mood = Mood.WELL


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    rows = config.stash.get(_ROWS, [])
    if rows:
        terminalreporter.section("drills")
        terminalreporter.write_line(table(rows))
