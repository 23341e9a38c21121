"""The same requests through the real stack and through the simulator."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from extproc.lab.bench.published import CHATS, SHARED
from extproc.lab.bench.replay import Replay, as_calls
from extproc.lab.bench.rows import Round
from extproc.lab.bench.sagemaker import PREFIX_LENGTH, SagemakerOptions, run_sagemaker, workload
from extproc.lab.replica.latency import PROFILES
from extproc.lab.report import document, write_json
from extproc.lab.rows import percentile
from extproc.lab.simulator.fleet import Fleet
from extproc.lab.simulator.loop import Records, Simulation
from extproc.lab.simulator.trial import Setup, run

EXPERIMENTS = (SHARED, CHATS)

HIT_RATE_WITHIN = 0.02
P50_WITHIN = 0.10

BY_CHANCE = frozenset({"random"})
"""Strategies whose choices no other run repeats."""

SEEDS = 5
"""Of the simulator for each workload: in a real run ties and routers are drawn by chance too."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What the stack gave, or the simulator; times in the model's time.

    Attributes:
        hit_rate: Share of prompt tokens found in caches.
        ttft_p50_s: Median time to first token.
    """

    hit_rate: float
    ttft_p50_s: float

    def near(self, other: "Figures") -> bool:
        """Whether both agree as well as they should."""
        return (
            abs(self.hit_rate - other.hit_rate) <= HIT_RATE_WITHIN
            and abs(self.ttft_p50_s / other.ttft_p50_s - 1) <= P50_WITHIN
        )


@dataclass(frozen=True, slots=True)
class Agreement:
    """One strategy on one workload.

    Attributes:
        experiment: Which workload.
        strategy: Who routed.
        measured: In the real stack.
        as_served: Simulated, each request at the replica that served it in the stack: shows whether
            replicas are alike.
        simulated: Simulated, with the simulator's own choices: shows whether routers are, too.
            Who chooses by chance chooses otherwise here.
    """

    experiment: str
    strategy: str
    measured: Figures
    as_served: Figures
    simulated: Figures

    @property
    def holds(self) -> bool:
        """Whether all agree; of a choice by chance, whether replicas do."""
        alike = self.strategy in BY_CHANCE or self.measured.near(self.simulated)
        return alike and self.measured.near(self.as_served)


async def run_agreement(options: SagemakerOptions, console: Console) -> list[Agreement]:
    """Send the benchmark's workloads through the stack, then through the simulator.

    Raises:
        StackError: If a part does not start or dies.
        ExperimentError: If the run cannot be measured.
        aiohttp.ClientError: If a router or replica does not tell its metrics.
    """
    rows = []
    for result in await run_sagemaker(options, console):
        name = result.experiment
        for row in result.rows:
            measured = Figures(row.hit_rate, row.ttft_p50_s)
            served = _as_served(options, name, result.rounds[row.strategy])
            simulated = _simulated(options, name, row.strategy)
            rows.append(Agreement(name, row.strategy, measured, served, simulated))
    return rows


def _cache_tokens(options: SagemakerOptions, experiment: str) -> int:
    return 0 if experiment == CHATS else options.cache_tokens


def _as_served(options: SagemakerOptions, experiment: str, rounds: Sequence[Round]) -> Figures:
    ran = []
    for number, part in enumerate(rounds):
        profile = PROFILES[options.profile]
        fleet = Fleet(profile, options.replicas, _cache_tokens(options, experiment))
        names = sorted({record.replica for record in part.outcome.records})
        served = {each.place: names.index(each.replica) for each in part.outcome.records}
        router = Replay(served)
        work = workload(options, experiment, number)
        ran.append(Simulation(fleet, [router], seed=0).run(as_calls(work, router.know)))
    return _figures(ran)


def _simulated(options: SagemakerOptions, experiment: str, strategy: str) -> Figures:
    setup = Setup(
        experiment,
        replicas=options.replicas,
        routers=options.routers,
        profile=options.profile,
        cache_tokens=_cache_tokens(options, experiment),
        settings={"length": str(PREFIX_LENGTH)},
    )
    return _figures(
        [
            run(setup, as_calls(workload(options, experiment, number)), strategy, seed)
            for number in range(options.rounds)
            for seed in range(SEEDS)
        ]
    )


def _figures(runs: Sequence[Records]) -> Figures:
    """Hit rate of all runs, and the median over runs of their median times to first token."""
    cached = sum(sum(each.cached_tokens) for each in runs)
    medians = [percentile(sorted(each.ttft_s), 50) for each in runs]
    return Figures(
        cached / sum(sum(each.prompt_tokens) for each in runs), statistics.median(medians)
    )


def present(
    rows: Sequence[Agreement], console: Console, *, command: str, seed: int, path: Path | None
) -> None:
    """Print the comparison, and write it.

    Args:
        rows: What was compared.
        console: Where to print.
        command: How the benchmark was called, for the rows.
        seed: Of the workloads.
        path: Where to write the rows, or None.
    """
    table = Table(title="The real stack and the simulator, on the same requests")
    table.add_column("workload")
    table.add_column("strategy")
    for heading in (
        "hits",
        "as served",
        "simulated",
        "P50 TTFT",
        "as served",
        "simulated",
        "agree",
    ):
        table.add_column(heading, justify="right")
    for row in rows:
        figures = row.measured, row.as_served, row.simulated
        table.add_row(
            row.experiment,
            row.strategy,
            *(f"{each.hit_rate:.1%}" for each in figures),
            *(f"{each.ttft_p50_s * 1000:.1f} ms" for each in figures),
            "yes" if row.holds else "no",
        )
    console.print(table)
    console.print(
        f"Agreement: hit rates within {HIT_RATE_WITHIN}, median times within {P50_WITHIN:.0%}. "
        "As served: simulated with the stack's own choices."
    )
    if path is not None:
        write_json(path, document(command, seed, []) | {"rows": [asdict(row) for row in rows]})
        console.print(f"Rows: {path}")
