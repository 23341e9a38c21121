"""Amazon's experiment with prefix-aware routing, through Envoy, routers and Valkey."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from extproc.lab.bench import overhead
from extproc.lab.bench.published import CHATS, SATURATION, SHARED
from extproc.lab.bench.rows import BenchRow, Floor, Round, floor, pool
from extproc.lab.envoy_config import ListenerConfig
from extproc.lab.experiment import Trial, measure, reset_caches
from extproc.lab.load import Record
from extproc.lab.replica.latency import DEFAULT_PROFILE, PROFILES
from extproc.lab.stack import LocalStack, ReplicaOptions
from extproc.lab.workload import Workload, at_speed, shared_prefixes, sharegpt_like
from extproc.pool_settings import PoolSettings

STRATEGIES = ("random", "least_outstanding_requests", "prefix_aware", "kv_aware")

PREFIX_TOKENS = 8000
TAIL_TOKENS = 100
REQUESTS_PER_PREFIX = 6.5
"""With endless caches 83 % of tokens are found: little more than the 82 % that Amazon saw."""
CACHED_SHARE = 0.35
"""Of all prefixes, what one replica's cache holds: then random routing finds Amazon's 25 %."""

PREFIX_LENGTH = 1024
"""The shortest that Amazon allows: else prefix_aware knows a short chat's turns for different."""

TIMEOUT_S = 600.0

STORE_DEADLINE_MS = "100"
"""Where clients, proxy, routers and replicas share a few processors, even a local store's answer
can take longer than the default allows."""


@dataclass(frozen=True, slots=True)
class SagemakerOptions:
    """What the benchmark runs.

    Attributes:
        strategies: Listeners to compare; the first is the baseline.
        experiments: Some of ``EXPERIMENTS``.
        replicas: Simulated replicas.
        routers: Router processes.
        requests: Requests per strategy and round.
        rounds: How often each strategy has its turn.
        rate: Requests per second with shared prefixes, in the model's time.
        chat_rate: Turns per second of the chats, in the model's time.
        concurrency: Requests that are open at once at saturation, per replica.
        output_tokens: Tokens of each answer after a shared prefix.
        speed: How many times faster than the latency model replicas run.
        chat_speed: The same for the chats, in which a client mostly waits for long answers.
        seed: Of all workloads.
        profile: The replicas' latency model.
        logs: Folder of the parts' logs; None keeps them only after a failure.
    """

    strategies: Sequence[str] = STRATEGIES
    experiments: Sequence[str] = (SHARED, SATURATION, CHATS)
    replicas: int = 7
    routers: int = 2
    requests: int = 300
    rounds: int = 3
    rate: float = 16.0
    chat_rate: float = 8.0
    concurrency: int = 8
    output_tokens: int = 32
    speed: float = 1.0
    chat_speed: float = 2.0
    seed: int = 1
    profile: str = DEFAULT_PROFILE
    logs: Path | None = None

    def speed_of(self, experiment: str) -> float:
        """How many times faster than the latency model replicas run in an experiment."""
        return self.chat_speed if experiment == CHATS else self.speed

    @property
    def prefixes(self) -> int:
        """Shared prefixes of a round."""
        return max(1, round(self.requests / REQUESTS_PER_PREFIX))

    @property
    def cache_tokens(self) -> int:
        """What one replica's cache holds where prefixes are shared."""
        prefixes = max(2, round(self.prefixes * CACHED_SHARE))
        return round(prefixes * (PREFIX_TOKENS + 2 * (TAIL_TOKENS + self.output_tokens)))


@dataclass(frozen=True, slots=True)
class Result:
    """What an experiment gave.

    Attributes:
        experiment: Its name.
        title: What was sent.
        rows: One per strategy, in the order of the options.
        rounds: What the rows were made of, by strategy.
    """

    experiment: str
    title: str
    rows: Sequence[BenchRow]
    rounds: Mapping[str, Sequence[Round]]


def workload(options: SagemakerOptions, experiment: str, number: int) -> Workload:
    """What every strategy gets in one round, in the model's time; no two rounds share prompts.

    Args:
        options: Lengths and rates.
        experiment: Its name.
        number: The round's, 0 for the first.
    """
    seed = (options.seed * 1000 + number) * len(EXPERIMENTS) + EXPERIMENTS.index(experiment)
    if experiment == CHATS:
        return sharegpt_like(seed=seed, requests=options.requests, rate=options.chat_rate)
    prefixed = shared_prefixes(
        seed=seed,
        groups=options.prefixes,
        requests=options.requests,
        rate=options.rate,
        prefix_tokens=PREFIX_TOKENS,
        tail_tokens=TAIL_TOKENS,
        output_tokens=options.output_tokens,
    )
    if experiment == SHARED:
        return prefixed
    concurrency = options.concurrency * options.replicas
    return replace(
        prefixed,
        name=prefixed.name.replace(f"at {options.rate:g}/s", f"{concurrency} at a time"),
        conversations=[replace(chat, at_s=0.0) for chat in prefixed.conversations],
        concurrency=concurrency,
    )


EXPERIMENTS = (SHARED, SATURATION, CHATS)


async def run_sagemaker(options: SagemakerOptions, console: Console) -> list[Result]:
    """Run the experiments, one after the other, with a progress bar.

    Raises:
        StackError: If a part does not start or dies.
        ExperimentError: If the run cannot be measured.
        aiohttp.ClientError: If a router or replica does not tell its metrics.
    """
    results: list[Result] = []
    columns = (TextColumn("{task.description:<44}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        tasks = {
            name: progress.add_task(
                name,
                total=options.requests * options.rounds * len(options.strategies),
                start=False,
            )
            for name in options.experiments
        }
        for name, task in tasks.items():
            progress.start_task(task)
            results.append(await _experiment(options, name, progress, task))
    return results


def listeners(strategies: Sequence[str], speed: float, cache_tokens: int) -> list[ListenerConfig]:
    """One listener per strategy, each a pool of its own before the same replicas.

    Queued tokens drain as much faster as the replicas run.

    Args:
        strategies: Their names.
        speed: How many times faster than the latency model the replicas run.
        cache_tokens: What each replica's cache holds.
    """
    prefill_rate = round(PoolSettings().prefill_rate * speed)
    return [
        ListenerConfig(
            strategy,
            metadata={
                "x-prefix-strategy": strategy,
                "x-prefix-pool": f"bench-{strategy}",
                "x-prefix-length": str(PREFIX_LENGTH),
                "x-prefix-prefill-rate": str(max(1, prefill_rate)),
                "x-prefix-cache-tokens": str(cache_tokens),
            },
            whole_body=True,
        )
        for strategy in strategies
    ]


async def _experiment(
    options: SagemakerOptions, name: str, progress: Progress, task: TaskID
) -> Result:
    speed = options.speed_of(name)
    cache_tokens = 0 if name == CHATS else options.cache_tokens
    profile = PROFILES[options.profile]
    stack = LocalStack(
        listeners(options.strategies, speed, cache_tokens or profile.kv_tokens),
        routers=options.routers,
        replicas=options.replicas,
        replica_options=ReplicaOptions(
            cache_tokens=cache_tokens,
            speed=speed,
            profile=options.profile,
            per_process=-(-options.replicas // 2),  # two processes: as cheap as it gets on two CPUs
        ),
        environment={"PREFIX_EXTPROC_STORE_DEADLINE_MS": STORE_DEADLINE_MS},
        folder=options.logs / name if options.logs else None,
    )
    rounds: Mapping[str, list[Round]] = {strategy: [] for strategy in options.strategies}
    title = ""
    async with stack:
        for number in range(options.rounds):
            work = workload(options, name, number)
            title = title or work.name
            bound = floor(work, profile)
            for strategy in _turns(options.strategies, number):
                progress.update(task, description=f"{name}: {number + 1}, {strategy}")
                trial = Trial(strategy, stack.url(strategy), at_speed(work, speed))
                part = await _round(stack, trial, bound, _advance(progress, task))
                rounds[strategy].append(part)
                stack.check()
    progress.update(task, description=name)
    rows = [pool(name, speed, rounds[strategy]) for strategy in options.strategies]
    return Result(name, title, rows, rounds)


def _turns(strategies: Sequence[str], number: int) -> Iterator[str]:
    """Each round begins with another, so that what drifts favours nobody."""
    for index in range(len(strategies)):
        yield strategies[(index + number) % len(strategies)]


async def _round(
    stack: LocalStack, trial: Trial, bound: Floor, on_record: Callable[[Record], None]
) -> Round:
    await reset_caches(stack.replicas)
    admins = [router.admin for router in stack.routers]
    pids = [part.pid for part in stack.parts]
    cost, processors = await overhead.read(admins), overhead.ProcessorTime.now(pids)
    outcome = await measure(trial, stack.replicas, on_record, timeout_s=TIMEOUT_S)
    return Round(
        outcome,
        bound,
        cost=(await overhead.read(admins)).since(cost),
        processors=overhead.ProcessorTime.now(pids).since(processors),
        prompts=_prompts(trial.workload),
    )


def _prompts(work: Workload) -> int:
    return len({chat.system or chat.turns[0] for chat in work.conversations})


def _advance(progress: Progress, task: TaskID) -> Callable[[Record], None]:
    return lambda _: progress.advance(task)
