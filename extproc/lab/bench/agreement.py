"""The same requests through the real stack and through the simulator."""

import itertools
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from extproc.lab.bench.published import CHATS, SHARED
from extproc.lab.bench.sagemaker import PREFIX_LENGTH, SagemakerOptions, run_sagemaker, workload
from extproc.lab.replica.cache import chain_hashes
from extproc.lab.replica.openai import output_bytes, prompt_tokens, read_generation
from extproc.lab.report import document, write_json
from extproc.lab.rows import percentile
from extproc.lab.simulator import calls
from extproc.lab.simulator.trial import Setup, run
from extproc.lab.workload import Conversation, Workload

EXPERIMENTS = (SHARED, CHATS)

HIT_RATE_WITHIN = 0.02
P50_WITHIN = 0.10

SEEDS = 5
"""Of the simulator for each workload: in a real run ties and routers are drawn by chance too."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """One strategy on one workload, measured and simulated; times in the model's time.

    Attributes:
        experiment: Which workload.
        strategy: Who routed.
        hit_rate: Measured share of prompt tokens found in caches.
        simulated_hit_rate: The same, simulated.
        ttft_p50_s: Measured median time to first token.
        simulated_ttft_p50_s: The same, simulated.
    """

    experiment: str
    strategy: str
    hit_rate: float
    simulated_hit_rate: float
    ttft_p50_s: float
    simulated_ttft_p50_s: float

    @property
    def holds(self) -> bool:
        """Whether both agree as well as they should."""
        return (
            abs(self.hit_rate - self.simulated_hit_rate) <= HIT_RATE_WITHIN
            and abs(self.ttft_p50_s / self.simulated_ttft_p50_s - 1) <= P50_WITHIN
        )


async def run_agreement(options: SagemakerOptions, console: Console) -> list[Agreement]:
    """Send the benchmark's workloads through the stack, then through the simulator.

    Raises:
        StackError: If a part does not start or dies.
        ExperimentError: If the run cannot be measured.
        aiohttp.ClientError: If a router or replica does not tell its metrics.
    """
    rows = []
    for result in await run_sagemaker(options, console):
        for row in result.rows:
            hit_rate, p50_s = _simulated(options, result.experiment, row.strategy)
            measured = (row.experiment, row.strategy, row.hit_rate)
            rows.append(Agreement(*measured, hit_rate, row.ttft_p50_s, p50_s))
    return rows


def _simulated(options: SagemakerOptions, experiment: str, strategy: str) -> tuple[float, float]:
    """Hit rate of all rounds, and the median over rounds of their median times to first token."""
    setup = Setup(
        experiment,
        replicas=options.replicas,
        routers=options.routers,
        profile=options.profile,
        cache_tokens=0 if experiment == CHATS else options.cache_tokens,
        settings={"length": str(PREFIX_LENGTH)},
    )
    cached = prompts = 0
    medians = []
    for number in range(options.rounds):
        work = workload(options, experiment, number)
        for seed in range(SEEDS):
            records = run(setup, as_calls(work), strategy, seed)
            cached += sum(records.cached_tokens)
            prompts += sum(records.prompt_tokens)
            medians.append(percentile(sorted(records.ttft_s), 50))
    return cached / prompts, statistics.median(medians)


def as_calls(work: Workload) -> calls.Workload:
    """The simulator's form of what a client sends, with the answers that it will get."""
    first = sorted(work.conversations, key=lambda conversation: conversation.at_s)
    return calls.Workload(work.name, (_chained(work, each) for each in first), work.requests)


def _chained(work: Workload, conversation: Conversation) -> calls.Call:
    turns = list(_turns(work, conversation))
    for turn, following in itertools.pairwise(turns):
        turn.then = conversation.think_s, following
    return turns[0]


def _turns(work: Workload, conversation: Conversation) -> Iterator[calls.Call]:
    answers: list[bytes] = []
    for number in range(len(conversation.turns)):
        body = work.body(conversation, number, [answer.decode() for answer in answers])
        generation = read_generation(body, chat=True)
        prompt = generation.prompts[0]
        answers.append(output_bytes(generation.output_tokens))
        yield calls.Call(
            conversation.at_s,
            chain_hashes(prompt + answers[-1], generation.salt),
            prompt_tokens(prompt),
            generation.output_tokens,
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
    for heading in ("hits", "simulated", "P50 TTFT", "simulated", "agree"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            row.experiment,
            row.strategy,
            f"{row.hit_rate:.1%}",
            f"{row.simulated_hit_rate:.1%}",
            f"{row.ttft_p50_s * 1000:.1f} ms",
            f"{row.simulated_ttft_p50_s * 1000:.1f} ms",
            "yes" if row.holds else "no",
        )
    console.print(table)
    console.print(
        f"Agreement: hit rates within {HIT_RATE_WITHIN}, median times within {P50_WITHIN:.0%}."
    )
    if path is not None:
        write_json(path, document(command, seed, []) | {"rows": [asdict(row) for row in rows]})
        console.print(f"Rows: {path}")
