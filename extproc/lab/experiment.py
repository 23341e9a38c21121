"""One workload under several strategies, measured at the client and by the replicas' counters."""

import asyncio
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import aiohttp

from extproc.lab import counters, load
from extproc.lab.rows import Measured, percentile
from extproc.lab.workload import Workload

IDLE_DEADLINE_S = 30.0


class ExperimentError(Exception):
    """The run cannot be measured; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One strategy to try.

    Attributes:
        strategy: Its name.
        url: Base URL of the listener that routes by it.
        workload: What to send.
    """

    strategy: str
    url: str
    workload: Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Measured):
    """What one strategy gave; times in seconds, at the client, of answered requests.

    Attributes:
        ttft_hit_p50_s: Median time to first token where most of the prompt was cached, if any was.
        ttft_miss_p50_s: The same where it was not.
    """

    ttft_hit_p50_s: float | None = None
    ttft_miss_p50_s: float | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """A row and what it was made from.

    Attributes:
        row: The summary.
        records: What became of each request.
        counters: What each replica counted, by ``ip:port``.
    """

    row: Row
    records: Sequence[load.Record]
    counters: Mapping[str, counters.Counters]


async def measure(
    trial: Trial,
    replicas: Sequence[str],
    on_record: Callable[[load.Record], None] = lambda _: None,
    *,
    timeout_s: float = 60.0,
) -> Outcome:
    """Send a trial's workload, and read the replicas' counters before and after.

    Args:
        trial: What to send where.
        replicas: ``ip:port`` of all model servers behind the URL, with vLLM's ``/metrics``.
        on_record: Called at each request's end.
        timeout_s: For each request.

    Raises:
        ExperimentError: If no request was answered, or the replicas do not come to rest.
    """
    before = await _at_rest(replicas)
    records = await load.run(trial.workload, trial.url, on_record=on_record, timeout_s=timeout_s)
    after = await _at_rest(replicas)
    counted = {address: after[address].since(before[address]) for address in replicas}
    return Outcome(summarize(trial.strategy, records, counted), records, counted)


def summarize(
    strategy: str,
    records: Sequence[load.Record],
    counted: Mapping[str, counters.Counters],
) -> Row:
    """Make a row.

    Raises:
        ExperimentError: If no request was answered.
    """
    answered = [record for record in records if record.ok]
    if not answered:
        problem = records[0].error if records else "nothing was sent"
        raise ExperimentError(f"{strategy}: no request was answered; the first: {problem}")
    times = sorted(record.ttft_s for record in answered)
    hits = sorted(record.ttft_s for record in answered if record.hit)
    misses = sorted(record.ttft_s for record in answered if not record.hit)
    span = max(record.ended_s for record in answered) - min(record.sent_s for record in answered)
    share_min, share_max = counters.shares(counted)
    return Row(
        strategy=strategy,
        hit_rate=counters.hit_rate(counted),
        ttft_p50_s=percentile(times, 50),
        ttft_p90_s=percentile(times, 90),
        ttft_p99_s=percentile(times, 99),
        ttft_mean_s=statistics.fmean(times),
        requests_per_s=len(answered) / span if span else 0.0,
        share_min=share_min,
        share_max=share_max,
        requests=len(records),
        failed=len(records) - len(answered),
        ttft_hit_p50_s=percentile(hits, 50) if hits else None,
        ttft_miss_p50_s=percentile(misses, 50) if misses else None,
    )


async def reset_caches(replicas: Sequence[str]) -> None:
    """Empty every replica's prefix cache (vLLM: needs its development mode).

    Raises:
        aiohttp.ClientError: If a replica refuses.
    """
    async with aiohttp.ClientSession(raise_for_status=True) as session:
        for address in replicas:
            async with session.post(f"http://{address}/reset_prefix_cache"):
                pass


async def _at_rest(replicas: Sequence[str]) -> Mapping[str, counters.Counters]:
    end = asyncio.get_running_loop().time() + IDLE_DEADLINE_S
    while True:
        counted = await counters.read(replicas)
        busy = [address for address, counter in counted.items() if counter.open]
        if not busy:
            return counted
        if asyncio.get_running_loop().time() > end:
            raise ExperimentError(
                f"{', '.join(busy)} still had open requests after {IDLE_DEADLINE_S:g} s; "
                "stop whatever else sends to them"
            )
        await asyncio.sleep(0.1)
