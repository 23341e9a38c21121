"""The measurement: every case through every way, in turns, several times over."""

import asyncio
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from time import perf_counter

from extproc.lab.bench.overhead import ProcessorTime
from extproc.lab.overhead import accounts, client
from extproc.lab.overhead.cases import Case, body_parts
from extproc.lab.overhead.stack import OverheadStack, Way

WARM_UP = 10
"""Requests before the measured ones, or one for each client where those are more."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One case through one way, once.

    Attributes:
        case: What was sent.
        way: The name of the way.
        requests: How many.
        wall_s: Until all were answered.
        p50_s: Median time of an answer.
        p90_s: Time within which 90 % were answered.
        p99_s: Time within which 99 % were.
        router_s: Processor time of who decides; 0 where nobody does.
        envoy_s: Processor time of Envoy.
        store_s: Processor time of the store's process; 0 where there is none.
        memory_bytes: Resident memory of who decides, afterwards.
    """

    case: Case
    way: str
    requests: int
    wall_s: float
    p50_s: float
    p90_s: float
    p99_s: float
    router_s: float
    envoy_s: float
    store_s: float
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Measured:
    """All samples, and how busy the machine was.

    Attributes:
        samples: Of all rounds.
        own_share: Share of all processors' time that the benchmark used.
        busy_share: Share that was used, by whomever.
    """

    samples: list[Sample]
    own_share: float
    busy_share: float


async def measure(
    stack: OverheadStack,
    cases: Sequence[Case],
    *,
    rounds: int,
    requests: int,
    seed: int,
    progress: Callable[[str], None],
) -> Measured:
    """Send every case through every way in each round; each round begins with another way.

    Args:
        stack: Running.
        cases: What to send.
        rounds: How often.
        requests: For each, where they are short; fewer where they are long.
        seed: Of the prompts' text.
        progress: Told what comes next.

    Raises:
        LoadError: If a request is not answered with 200.
    """
    serials = count(1)
    names = list(stack.ways)
    pids = [part.pid for part in stack.parts]
    samples = []
    before = ProcessorTime.now(pids)
    for number in range(rounds):
        for place, case in enumerate(cases):
            progress(f"round {number + 1} of {rounds}: {case.name}")
            parts = body_parts(case, seed)
            first = (number + place) % len(names)
            for name in names[first:] + names[:first]:
                way = stack.ways[name]
                load = client.Load(way.port, case.requests(requests), case.clients, parts)
                samples.append(await _sample(stack, way, case, load, serials))
    spent = ProcessorTime.now(pids).since(before)
    return Measured(samples, spent.own_share, spent.busy_share)


async def _sample(
    stack: OverheadStack, way: Way, case: Case, load: client.Load, serials: Iterator[int]
) -> Sample:
    warm_up = client.Load(load.port, max(WARM_UP, load.clients), load.clients, load.parts)
    await asyncio.to_thread(client.run, warm_up, serials)
    groups = [
        [way.router.pid] if way.router else [],
        [stack.envoy.pid],
        [way.store.pid] if way.store else [],
    ]
    before = [accounts.cpu_s(group) for group in groups]
    start = perf_counter()
    times = await asyncio.to_thread(client.run, load, serials)
    wall = perf_counter() - start
    router, envoy, store = (
        accounts.cpu_s(group) - then for group, then in zip(groups, before, strict=True)
    )
    percentiles = statistics.quantiles(times, n=100, method="inclusive")
    return Sample(
        case=case,
        way=way.name,
        requests=len(times),
        wall_s=wall,
        p50_s=percentiles[49],
        p90_s=percentiles[89],
        p99_s=percentiles[98],
        router_s=router,
        envoy_s=envoy,
        store_s=store,
        memory_bytes=accounts.memory_bytes(groups[0]),
    )
