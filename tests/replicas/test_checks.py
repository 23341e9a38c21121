"""Active checks against HTTP servers of the tests."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer, unused_port

from extproc.affinity import MemoryStore
from extproc.replicas.checks import Checks
from extproc.replicas.faults import Fault
from extproc.replicas.fleet import CheckPolicy, Fleet
from extproc.replicas.health import Ejection, Health, HealthPolicy
from extproc.replicas.source import Candidates
from tests.replicas.sinks import LIMIT_S


class Replica:
    """Answers checks with a status of the test's choice."""

    def __init__(self) -> None:
        self.status = 200
        self.asked: Counter[str] = Counter()
        self.address = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.asked[request.path_qs] += 1
        if self.status == 0:
            await asyncio.sleep(LIMIT_S)
        return web.Response(status=self.status, headers={"Location": "/elsewhere"})


@pytest.fixture
async def replica() -> AsyncIterator[Replica]:
    made = Replica()
    app = web.Application()
    app.router.add_get("/{path:.*}", made.answer)
    async with TestServer(app) as server:
        made.address = f"127.0.0.1:{server.port}"
        yield made


@pytest.fixture
def health() -> Health:
    made = Health("pool", MemoryStore())
    made.policy = HealthPolicy(eject_s=3600)
    return made


async def until(health: Health, address: str, *, ejected: bool) -> None:
    async with asyncio.timeout(LIMIT_S):
        while (health.states([address])[address].ejection is not None) is not ejected:
            await asyncio.sleep(0.02)


async def run(checks: Checks) -> None:
    """Check without the pauses between."""
    checks._interval_s = 0
    timeout = checks._timeout
    checks.start()
    assert timeout.total == 1


@pytest.mark.parametrize("status", [500, 503, 404, 302, 0])
async def test_who_does_not_pass_is_out_until_it_does(
    health: Health, replica: Replica, status: int
) -> None:
    dead = f"127.0.0.1:{unused_port()}"
    health.fit((replica.address, dead))
    checks = Checks(health, lambda _address: True, path="/health?deep=1", interval_s=1)
    await run(checks)
    await until(health, dead, ejected=True)
    replica.status = status
    await until(health, replica.address, ejected=True)
    assert health.states([replica.address])[replica.address].ejection == Ejection(Fault.CHECK, 1)
    replica.status = 204
    await until(health, replica.address, ejected=False)
    assert health.states([dead])[dead].ejection == Ejection(Fault.CHECK, 1)
    await checks.close()
    assert set(replica.asked) == {"/health?deep=1"}


async def test_another_router_checks_what_is_not_ours(health: Health, replica: Replica) -> None:
    dead = f"127.0.0.1:{unused_port()}"
    health.fit((replica.address, dead))
    checks = Checks(health, lambda address: address == dead, path="/health", interval_s=1)
    await run(checks)
    await until(health, dead, ejected=True)
    await checks.close()
    assert not replica.asked


async def test_a_fleet_checks_by_the_pools_settings(replica: Replica) -> None:
    fleet = Fleet("pool", MemoryStore(), Counter())
    fleet.fit(Candidates((replica.address,)))
    for path in ("/one", "/two"):
        fleet.apply(HealthPolicy(), CheckPolicy(path, 1))
        fleet.apply(HealthPolicy(), CheckPolicy(path, 1))
        async with asyncio.timeout(LIMIT_S):
            while not replica.asked[path]:
                await asyncio.sleep(0.02)
    fleet.apply(HealthPolicy(), CheckPolicy())
    await fleet.close()
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "health-checks"]
