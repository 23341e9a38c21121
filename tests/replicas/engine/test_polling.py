"""Asking engines over HTTP, and load reports in responses."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer, unused_port

from extproc.affinity import MemoryStore
from extproc.replicas.engine.engines import EnginePolicy
from extproc.replicas.engine.report import Report
from extproc.replicas.fleet import CheckPolicy, Fleet
from extproc.replicas.health import HealthPolicy
from extproc.replicas.source import Candidates
from tests.replicas.engine.pages import vllm
from tests.replicas.sinks import LIMIT_S


class Engine:
    """Answers with a page of the test's choice."""

    def __init__(self) -> None:
        self.page = vllm(num_requests_running=1)
        self.status = 200
        self.asked = 0
        self.address = ""

    async def answer(self, _request: web.Request) -> web.Response:
        self.asked += 1
        return web.Response(body=self.page, status=self.status)


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    made = Engine()
    app = web.Application()
    app.router.add_get("/metrics", made.answer)
    async with TestServer(app) as server:
        made.address = f"127.0.0.1:{server.port}"
        yield made


def apply(fleet: Fleet, path: str) -> None:
    fleet.apply(HealthPolicy(), CheckPolicy(), EnginePolicy(path, 1))


async def until(fleet: Fleet, address: str, holds: Callable[[Report], bool]) -> Report:
    async with asyncio.timeout(LIMIT_S):
        while True:
            report = fleet.engines.reports.get(address)
            if report is not None and holds(report):
                return report
            await asyncio.sleep(0.02)


async def test_the_queue_at_an_engine_weighs_in_the_choice_until_it_is_gone(
    engine: Engine,
) -> None:
    store = MemoryStore()
    store.join("pool", [engine.address])
    fleet = Fleet("pool", store, Counter())
    candidates = Candidates((engine.address, f"127.0.0.1:{unused_port()}"))
    fleet.fit(candidates)
    engine.page = vllm(num_requests_running=2, num_requests_waiting=4)
    apply(fleet, "/metrics")
    await until(fleet, engine.address, lambda report: report.foreign_waiting == 4)
    standings = fleet.fit(candidates).standings
    assert list(standings) == [engine.address]
    assert standings[engine.address].queued_tokens > 0
    engine.page = vllm(num_requests_running=0, num_requests_waiting=0)
    await until(fleet, engine.address, lambda report: report.waiting == 0)
    assert not fleet.fit(candidates).standings
    await fleet.close()


async def test_who_cannot_be_asked_is_routed_to_all_the_same(engine: Engine) -> None:
    fleet = Fleet("pool", MemoryStore(), Counter())
    dead = f"127.0.0.1:{unused_port()}"
    candidates = Candidates((engine.address, dead))
    fleet.fit(candidates)
    engine.status = 404
    apply(fleet, "/metrics")
    report = await until(fleet, engine.address, lambda report: bool(report.error))
    assert report.error == "status 404 of /metrics"
    assert "no answer" in (await until(fleet, dead, lambda report: bool(report.error))).error
    assert fleet.fit(candidates).addresses == candidates.addresses
    assert not fleet.fit(candidates).standings
    engine.status, engine.page = 200, b"<html>"
    await until(fleet, engine.address, lambda report: "is this the engine's" in report.error)
    await fleet.close()


async def test_another_router_asks_whom_we_do_not(engine: Engine) -> None:
    class Elsewhere(MemoryStore):
        def elected(self, pool: str, job: str) -> bool:
            return job != f"engine/{engine.address}"

    fleet = Fleet("pool", Elsewhere(), Counter())
    dead = f"127.0.0.1:{unused_port()}"
    fleet.fit(Candidates((engine.address, dead)))
    apply(fleet, "/metrics")
    await until(fleet, dead, lambda report: bool(report.error))
    await fleet.close()
    assert not engine.asked


async def test_nothing_runs_on_where_nothing_is_asked_any_more(engine: Engine) -> None:
    fleet = Fleet("pool", MemoryStore(), Counter())
    fleet.fit(Candidates((engine.address,)))
    apply(fleet, "/metrics")
    await until(fleet, engine.address, lambda report: report.running == 1)
    apply(fleet, "")
    await fleet.close()
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "engine-metrics"]


async def test_a_load_report_counts_once_a_second_and_not_beside_metrics(engine: Engine) -> None:
    store = MemoryStore()
    store.join("pool", [engine.address])
    fleet = Fleet("pool", store, Counter())
    headers = {"endpoint-load-metrics": ["TEXT named_metrics.num_requests_waiting=5"]}
    assert fleet.reported(engine.address, {}) is None
    first = fleet.reported(engine.address, headers)
    assert first is not None
    assert fleet.reported(engine.address, headers) is None
    await first
    assert fleet.engines.reports[engine.address].foreign_waiting == 5
    apply(fleet, "/metrics")
    assert fleet.reported("10.0.0.9:80", headers) is None
    await fleet.close()
