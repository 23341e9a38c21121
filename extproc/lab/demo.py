"""The demo: the whole deployment on this machine, one workload, three strategies."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from extproc.lab import report
from extproc.lab.envoy_config import ListenerConfig
from extproc.lab.experiment import Outcome, Trial, measure, reset_caches
from extproc.lab.load import Record
from extproc.lab.stack import LocalStack, ReplicaOptions
from extproc.lab.workload import Workload, infinite_cache_hit_rate, shared_prefixes

STRATEGIES = ("random", "prefix_aware", "kv_aware")

PREFIX_TOKENS = 8000
GROUPS_PER_REPLICA = 4
CACHED_PREFIXES = 6
"""Prefixes that one replica's cache holds: its share of them and half as many more, as a replica
in production whose cache is a fraction of what all tenants' prompts would fill."""

STORE_DEADLINE_MS = "100"
"""Where clients, proxy, routers and replicas share a few processors, even a local store's answer
can take longer than the default allows."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What the demo runs.

    Attributes:
        replicas: Simulated replicas.
        routers: Router processes.
        requests: Requests per strategy.
        rate: Requests per second.
        seed: Of the workload.
        output: Folder of the chart and the logs.
        json_file: Where to write the rows, or None.
        command: How the demo was called, for the rows.
    """

    replicas: int = 7
    routers: int = 2
    requests: int = 240
    rate: float = 16.0
    seed: int = 1
    output: Path = Path("prefix-extproc-demo")
    json_file: Path | None = None
    command: str = "prefix-extproc demo"


async def run_demo(options: DemoOptions, console: Console) -> list[Outcome]:
    """Run the demo and print what it gave.

    Raises:
        StackError: If a part does not start or dies.
        ExperimentError: If the run cannot be measured.
    """
    workload = shared_prefixes(
        seed=options.seed,
        groups=GROUPS_PER_REPLICA * options.replicas,
        requests=options.requests,
        rate=options.rate,
        prefix_tokens=PREFIX_TOKENS,
    )
    cache_tokens = int(PREFIX_TOKENS * (CACHED_PREFIXES + 0.5))
    console.print(
        f"Starting Envoy, Valkey, {options.routers} routers and {options.replicas} simulated "
        f"replicas (Llama-3.1-70B on 8 x H100, caches of {cache_tokens:,} tokens) ..."
    )
    stack = LocalStack(
        strategy_listeners(STRATEGIES),
        routers=options.routers,
        replicas=options.replicas,
        replica_options=ReplicaOptions(cache_tokens=cache_tokens, per_process=options.replicas),
        environment={"PREFIX_EXTPROC_STORE_DEADLINE_MS": STORE_DEADLINE_MS},
        folder=options.output / "logs",
    )
    async with stack:
        outcomes = await compare(stack, dict.fromkeys(STRATEGIES, workload), console, reset=True)
    bound = infinite_cache_hit_rate(workload)
    present(outcomes, options, console, title=workload.name, bound=bound)
    return outcomes


def strategy_listeners(strategies: Sequence[str]) -> list[ListenerConfig]:
    """One listener per strategy, each a pool of its own before the same replicas."""
    return [
        ListenerConfig(
            strategy,
            metadata={"x-prefix-strategy": strategy, "x-prefix-pool": f"demo-{strategy}"},
            whole_body=True,
        )
        for strategy in strategies
    ]


async def compare(
    stack: LocalStack, workloads: Mapping[str, Workload], console: Console, *, reset: bool
) -> list[Outcome]:
    """Send a workload under each strategy, one after the other, with a progress bar.

    Args:
        stack: Running, with a listener named as each strategy.
        workloads: By strategy.
        console: For the progress bar.
        reset: Whether to empty the replicas' caches before each strategy; else the workloads must
            not share prompts.

    Raises:
        StackError: If a part died.
        ExperimentError: If the run cannot be measured.
    """
    outcomes = []
    columns = (
        TextColumn("{task.description:<14}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("requests"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        tasks = {
            strategy: progress.add_task(strategy, total=workload.requests, start=False)
            for strategy, workload in workloads.items()
        }
        for strategy, workload in workloads.items():
            if reset:
                await reset_caches(stack.replicas)
            task = tasks[strategy]
            progress.start_task(task)
            trial = Trial(strategy, stack.url(strategy), workload)
            outcomes.append(await measure(trial, stack.replicas, _advance(progress, task)))
            stack.check()
    return outcomes


def _advance(progress: Progress, task: TaskID) -> Callable[[Record], None]:
    return lambda _: progress.advance(task)


def present(
    outcomes: Sequence[Outcome],
    options: DemoOptions,
    console: Console,
    *,
    title: str,
    bound: float | None = None,
) -> None:
    """Print the table, save chart and rows, and say where they are.

    Args:
        outcomes: At least one.
        options: Where to save.
        console: Where to print.
        title: What was sent.
        bound: Hit rate of an infinite cache, or None.
    """
    rows = [outcome.row for outcome in outcomes]
    console.print()
    console.print(report.table(rows, title=title, bound=bound))
    if bound is not None:
        console.print(f"An infinite cache would give {bound:.1%} hits on this workload.")
    chart = options.output / "chart.png"
    report.write_chart(chart, outcomes, title=title, bound=bound)
    rows_file = options.json_file or options.output / "rows.json"
    report.write_json(rows_file, report.document(options.command, options.seed, rows))
    console.print(f"Chart: {chart}\nRows:  {rows_file}\nLogs:  {options.output / 'logs'}")
