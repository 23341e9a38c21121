"""Rounds of one strategy pooled into one row, in the model's time."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields

from extproc.lab import counters
from extproc.lab.bench.overhead import ProcessorTime, RouterCost
from extproc.lab.experiment import Outcome
from extproc.lab.replica.latency import Chunk, Profile
from extproc.lab.rows import Measured, percentile
from extproc.lab.workload import Workload, infinite_cache


@dataclass(frozen=True, slots=True)
class Floor:
    """What no router can beat on a workload: every replica idle, every cache endless and shared.

    Attributes:
        tokens: Of all prompts.
        cached: Of these, tokens found in one endless cache.
        ttft_p50_s: Median time to prefill the rest.
        ttft_p90_s: Time within which the rest of 90 % of prompts is prefilled.
    """

    tokens: int
    cached: int
    ttft_p50_s: float
    ttft_p90_s: float


@dataclass(frozen=True, slots=True)
class Round:
    """One strategy's part of one round.

    Attributes:
        outcome: What the client and the replicas saw, in wall-clock time.
        floor: Of the round's workload, in the model's time.
        cost: What the routers spent on it.
        processors: What the benchmark and all others used meanwhile.
        prompts: Distinct beginnings of prompts: shared prefixes or conversations.
    """

    outcome: Outcome
    floor: Floor
    cost: RouterCost
    processors: ProcessorTime
    prompts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRow(Measured):
    """What one strategy gave in one experiment.

    Times and rates are medians over rounds, in the model's time: wall-clock times multiplied by
    ``speed``, rates divided by it. Hit rates, shares, requests and the routers' costs are of
    all rounds together, and the last are wall-clock times.

    Attributes:
        experiment: Its name.
        speed: How many times faster than the latency model the replicas ran.
        rounds: How many.
        replicas: How many.
        infinite_hit_rate: What one endless cache would give.
        floor_p50_s: As ``ttft_p50_s``, were there no queue, one endless cache and no proxy.
        floor_p90_s: The same of ``ttft_p90_s``.
        decision_mean_s: Mean time of a routing decision.
        decision_p50_s: Median time of a routing decision, within a bucket of the histogram.
        decision_p99_s: The time within which 99 % of decisions were taken, the same way.
        router_cpu_s: Processor time of the routers per request.
        prompts: Distinct beginnings of prompts in all rounds: shared prefixes or conversations.
        cpu_own: Share of the machine's processor time that the benchmark used.
        cpu_busy: Share that was used, by whomever.
    """

    experiment: str
    speed: float
    rounds: int
    replicas: int
    infinite_hit_rate: float
    floor_p50_s: float
    floor_p90_s: float
    decision_mean_s: float
    decision_p50_s: float
    decision_p99_s: float
    router_cpu_s: float
    prompts: int
    cpu_own: float
    cpu_busy: float


def floor(workload: Workload, profile: Profile) -> Floor:
    """What no router can beat on a workload.

    Args:
        workload: At least one request.
        profile: The replicas' latency model.
    """
    lookups = infinite_cache(workload)
    times = sorted(
        profile.prefill_s([Chunk(lookup.tokens - lookup.cached, lookup.cached)])
        for lookup in lookups
    )
    return Floor(
        sum(lookup.tokens for lookup in lookups),
        sum(lookup.cached for lookup in lookups),
        percentile(times, 50),
        percentile(times, 90),
    )


def pool(experiment: str, speed: float, rounds: Sequence[Round]) -> BenchRow:
    """One row of the rounds of one strategy, at least one.

    Args:
        experiment: Its name.
        speed: How many times faster than the latency model the replicas ran.
        rounds: Each with its own workload.
    """
    rows = [part.outcome.row for part in rounds]

    def median(value: Callable[[Round], float]) -> float:
        return statistics.median(map(value, rounds))

    counted = _added_up([part.outcome.counters for part in rounds])
    share_min, share_max = counters.shares(counted)
    cost = sum((part.cost for part in rounds), RouterCost())
    return BenchRow(
        experiment=experiment,
        strategy=rows[0].strategy,
        speed=speed,
        rounds=len(rounds),
        replicas=len(counted),
        hit_rate=counters.hit_rate(counted),
        infinite_hit_rate=sum(part.floor.cached for part in rounds)
        / sum(part.floor.tokens for part in rounds),
        ttft_p50_s=median(lambda part: part.outcome.row.ttft_p50_s) * speed,
        ttft_p90_s=median(lambda part: part.outcome.row.ttft_p90_s) * speed,
        ttft_p99_s=median(lambda part: part.outcome.row.ttft_p99_s) * speed,
        ttft_mean_s=median(lambda part: part.outcome.row.ttft_mean_s) * speed,
        floor_p50_s=median(lambda part: part.floor.ttft_p50_s),
        floor_p90_s=median(lambda part: part.floor.ttft_p90_s),
        requests_per_s=median(lambda part: part.outcome.row.requests_per_s) / speed,
        share_min=share_min,
        share_max=share_max,
        requests=sum(row.requests for row in rows),
        failed=sum(row.failed for row in rows),
        decision_mean_s=cost.mean_s,
        decision_p50_s=cost.quantile_s(0.5),
        decision_p99_s=cost.quantile_s(0.99),
        router_cpu_s=cost.cpu_per_decision_s,
        prompts=sum(part.prompts for part in rounds),
        cpu_own=statistics.fmean(part.processors.own_share for part in rounds),
        cpu_busy=statistics.fmean(part.processors.busy_share for part in rounds),
    )


def _added_up(
    rounds: Sequence[Mapping[str, counters.Counters]],
) -> Mapping[str, counters.Counters]:
    names = [each.name for each in fields(counters.Counters)]
    return {
        address: counters.Counters(
            **{name: sum(getattr(counted[address], name) for counted in rounds) for name in names}
        )
        for address in rounds[0]
    }
