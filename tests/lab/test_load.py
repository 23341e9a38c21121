from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import BaseTestServer, TestServer

from extproc.lab import load
from extproc.lab.experiment import ExperimentError, Trial, measure, reset_caches
from extproc.lab.replica.http import Replica, ReplicaSettings
from extproc.lab.workload import Workload, chats, infinite_cache_hit_rate, shared_prefixes


@pytest.fixture
async def server() -> AsyncIterator[BaseTestServer]:
    replica = Replica(ReplicaSettings(name="r1", speed=float("inf")))
    async with TestServer(replica.application) as running:
        yield running


def url(server: BaseTestServer) -> str:
    return str(server.make_url("")).rstrip("/")


def address_of(server: BaseTestServer) -> str:
    return str(server.make_url("").authority)


def small(requests: int = 12) -> Workload:
    return shared_prefixes(seed=1, groups=3, requests=requests, rate=200, prefix_tokens=200)


async def test_every_request_gets_a_record(server: BaseTestServer) -> None:
    seen: list[load.Record] = []
    records = await load.run(small(), url(server), on_record=seen.append)
    assert seen == records
    assert len(records) == 12
    for record in records:
        assert record.ok
        assert 0 < record.ttft_s <= record.ended_s - record.sent_s
        assert record.replica == "r1"
        assert record.prompt_tokens > 300
    assert sum(record.cached_tokens for record in records) > 0


async def test_later_turns_find_the_real_answers(server: BaseTestServer) -> None:
    workload = chats(seed=1, conversations=1, turns=3, rate=1, think_s=0.0)
    outcome = await measure(Trial("kv_aware", url(server), workload), [address_of(server)])
    assert outcome.row.hit_rate == pytest.approx(infinite_cache_hit_rate(workload))


async def test_a_row_says_what_the_replicas_counted(server: BaseTestServer) -> None:
    address = address_of(server)
    for _ in range(2):
        await reset_caches([address])
        row = (await measure(Trial("random", url(server), small()), [address])).row
        assert row.strategy == "random"
        assert (row.requests, row.failed) == (12, 0)
        assert (row.share_min, row.share_max) == (1, 1)
        assert 0 < row.hit_rate <= infinite_cache_hit_rate(small())
        assert 0 < row.ttft_p50_s <= row.ttft_p90_s <= row.ttft_p99_s
        assert row.requests_per_s > 0


async def test_refusals_are_failures() -> None:
    async def refuse(_: web.Request) -> web.Response:
        return web.Response(status=503, text="nobody home")

    application = web.Application()
    application.router.add_post("/v1/chat/completions", refuse)
    async with TestServer(application) as server:
        records = await load.run(small(2), url(server))
    assert [(record.status, record.ok, record.error) for record in records] == [
        (503, False, "nobody home")
    ] * 2


async def test_a_stream_that_breaks_off_is_a_failure() -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text='data: {"choices": [{"delta": {"content": "x"}}]}\n\n')

    application = web.Application()
    application.router.add_post("/v1/chat/completions", answer)
    async with TestServer(application) as server:
        records = await load.run(small(1), url(server))
    assert records[0].error == "the stream ended early"
    assert not records[0].ok


async def test_a_run_without_answers_is_an_error(server: BaseTestServer) -> None:
    address = address_of(server)
    with pytest.raises(ExperimentError, match="random: no request was answered"):
        await measure(Trial("random", "http://127.0.0.1:1", small(1)), [address])
