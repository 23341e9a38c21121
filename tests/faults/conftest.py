"""The stack that drills break, and the table of what they found."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import pytest
import pytest_asyncio

from tests.envoy.books import until
from tests.faults.drills import LIMIT_S, Drill, Load, Outcome, Row, table
from tests.faults.stack import FaultStack, replicas
from tests.moody import Mood

Drills = Callable[..., AbstractAsyncContextManager[Drill]]
"""``drill(stack, "the fault", allowed={...})``: traffic, and at its end the verdict."""


class Drilled(Protocol):
    """A stack that drills are for."""

    @property
    def entrance(self) -> str:
        """URL of the listener."""

    async def decisions(self) -> Sequence[int]:
        """How many each router has made since it was started."""

    async def spotless(self) -> bool:
        """Whether nothing is left of a fault."""


_ROWS = pytest.StashKey[list[Row]]()


@pytest.fixture
def load(request: pytest.FixtureRequest) -> Load:
    config = request.config
    return Load(config.getoption("--drill-rate"), config.getoption("--drill-seconds"))


@pytest.fixture
def drill(request: pytest.FixtureRequest, load: Load) -> Drills:
    rows = request.config.stash.setdefault(_ROWS, [])

    @asynccontextmanager
    async def run(
        stack: Drilled, fault: str, *, allowed: frozenset[Outcome] = frozenset()
    ) -> AsyncIterator[Drill]:
        """Traffic around a fault.

        It fails where a request had an outcome that is not allowed, and where something is left.
        """
        row = Row(request.node.name, fault, load.rate)
        made = Drill(stack.entrance, load, row, stack.decisions)
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
