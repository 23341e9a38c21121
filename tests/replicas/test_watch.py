"""Watching a source: its state, its outages, its end."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from extproc.replicas.endpoint import Endpoint, SourceError
from extproc.replicas.watch import Sink, SourceStatus, State, Watch
from tests.replicas.sinks import LIMIT_S

A, B = Endpoint("10.0.0.1:80"), Endpoint("10.0.0.2:80")
URL = "dns://replicas.example:80"


class Script:
    """A feed that does what it is told."""

    def __init__(self) -> None:
        self.orders: asyncio.Queue[tuple[Endpoint, ...] | Exception] = asyncio.Queue()
        self.follows = 0

    async def follow(self, sink: Sink) -> None:
        self.follows += 1
        while True:
            order = await self.orders.get()
            if isinstance(order, Exception):
                raise order
            sink.heard(order)


class Pauses:
    """Counts pauses instead of making them."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await asyncio.sleep(0)


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


@pytest_asyncio.fixture
async def watch(script: Script, pauses: Pauses) -> AsyncIterator[Watch]:
    started = Watch(URL, script, sleep=pauses)
    started.start()
    yield started
    await started.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await asyncio.sleep(0)


def essence(status: SourceStatus) -> tuple[str, State, str, int, tuple[Endpoint, ...]]:
    return status.kind, status.state, status.error, status.failures, status.endpoints


async def test_an_outage_keeps_the_replicas_and_is_logged_once(
    watch: Watch, script: Script
) -> None:
    assert essence(watch.status()) == ("dns", State.WAITING, "", 0, ())
    assert watch.status().age_s is None
    heard: list[tuple[Endpoint, ...]] = []
    watch.listeners.append(heard.append)
    with capture_logs() as logs:
        script.orders.put_nowait((B, A, A))
        await until(lambda: watch.status().state is State.OK)
        assert watch.endpoints == (A, B)
        age = watch.status().age_s
        assert age is not None
        assert age >= 0

        for _ in range(3):
            script.orders.put_nowait(SourceError("no answer"))
        await until(lambda: script.follows == 4)
        assert essence(watch.status()) == ("dns", State.STALE, "no answer", 1, (A, B))

        script.orders.put_nowait((A,))
        await until(lambda: watch.status().state is State.OK)
        script.orders.put_nowait(SourceError("again"))
        await until(lambda: watch.status().failures == 2)

    assert heard == [(A, B), (A,)]
    assert [(log["event"], log["source"], log.get("error")) for log in logs] == [
        ("discovery fails", URL, "no answer"),
        ("discovery is back", URL, None),
        ("discovery fails", URL, "again"),
    ]
    assert logs[0]["goes_on"] == "with the replicas that it told last"


async def test_a_source_that_never_answers_fails(watch: Watch, script: Script) -> None:
    with capture_logs() as logs:
        script.orders.put_nowait(SourceError("nobody there"))
        await until(lambda: script.follows == 2)

    assert essence(watch.status()) == ("dns", State.FAILING, "nobody there", 1, ())
    assert logs[0]["goes_on"] == "with what is learned from who serves"


async def test_a_fault_of_ours_is_an_outage(watch: Watch, script: Script) -> None:
    script.orders.put_nowait((A,))
    script.orders.put_nowait(KeyError("secret"))
    await until(lambda: script.follows == 2)

    assert essence(watch.status())[1:3] == (State.STALE, "fault of this server: KeyError")


async def test_pauses_grow_up_to_a_bound_and_begin_anew_after_an_answer(
    watch: Watch, script: Script, pauses: Pauses
) -> None:
    for _ in range(12):
        script.orders.put_nowait(SourceError("no answer"))
    await until(lambda: len(pauses.seconds) == 12)
    for number, pause in enumerate(pauses.seconds):
        most = min(5.0, 0.25 * 2**number)
        assert most / 2 <= pause <= most

    script.orders.put_nowait((A,))
    script.orders.put_nowait(SourceError("no answer"))
    await until(lambda: len(pauses.seconds) == 13)
    assert pauses.seconds[-1] <= 0.25


async def test_it_ends_by_itself_when_nobody_uses_it(script: Script) -> None:
    ended = asyncio.Event()
    watch = Watch(URL, script, on_end=ended.set, idle_s=0.05)
    watch.start()

    await asyncio.wait_for(ended.wait(), LIMIT_S)
    await watch.close()

    assert all(task.done() for task in watch._tasks)


async def test_it_goes_on_while_it_is_used(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("extproc.replicas.watch.monotonic", lambda: now[0])
    ended = asyncio.Event()
    watch = Watch(URL, script, on_end=ended.set, idle_s=0.02)
    watch.start()
    now[0] = 0.015
    watch.touch()
    now[0] = 0.03  # longer than idle since the start, but not since the last use
    await asyncio.sleep(0.06)
    assert not ended.is_set()

    now[0] = 1.0
    await asyncio.wait_for(ended.wait(), LIMIT_S)
    await watch.close()
