"""All that a simulation found, for whoever writes it down."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from extproc.lab.simulator.results import summarize
from extproc.lab.simulator.study import Outcome
from extproc.lab.simulator.trial import Setup


@dataclass(frozen=True, slots=True)
class Findings:
    """Several policies over one setup.

    Attributes:
        setup: What was simulated.
        workload: What was sent, in one line.
        requests: How many with each seed.
        seeds: Of the runs, in order.
        outcomes: One per policy, at least one.
        bound: Hit rate of an infinite cache, or None.
        command: The line that gives the same again.
    """

    setup: Setup
    workload: str
    requests: int
    seeds: Sequence[int]
    outcomes: Sequence[Outcome]
    bound: float | None
    command: str

    @property
    def ranked(self) -> list[Outcome]:
        """The policies, the shortest mean time to first token first."""
        return sorted(self.outcomes, key=lambda outcome: outcome.row.ttft_mean_s)

    @property
    def title(self) -> str:
        """The setup in one line."""
        setup, seeds = self.setup, len(self.seeds)
        faster = "" if setup.rate_scale == 1 else f", {setup.rate_scale:g} times as fast"
        mean = "" if seeds == 1 else f", mean of {seeds} seeds"
        pool = f"{setup.replicas} replicas ({setup.profile}), {self.routers}"
        return f"{self.workload}{faster}; {pool}{mean}"

    @property
    def routers(self) -> str:
        """How many, and whether they share what they know."""
        if self.setup.routers == 1:
            return "1 router"
        return (
            f"{self.setup.routers} routers, {'shared' if self.setup.shared else 'separate'} state"
        )


def by_seed(findings: Findings) -> list[dict[str, Any]]:
    """One row for each policy and seed: its setup, and the columns of ``Row`` but for spreads."""
    setup = findings.setup
    return [
        {
            "workload": setup.source,
            "replicas": setup.replicas,
            "routers": setup.routers,
            "state": "shared" if setup.shared else "separate",
            "profile": setup.profile,
            "rate_scale": setup.rate_scale,
            "seed": seed,
            **{
                name: value
                for name, value in summarize(outcome.row.strategy, setup.replicas, [records])
                .as_json()
                .items()
                if name not in _OF_SEVERAL
            },
        }
        for outcome in findings.outcomes
        for seed, records in zip(findings.seeds, outcome.runs, strict=True)
    ]


_OF_SEVERAL = frozenset({"seeds", "ttft_mean_spread_s", "ttft_p99_spread_s"})
