"""The demo with real vLLM servers as replicas."""

import random
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from extproc.lab.demo import STRATEGIES, DemoOptions, compare, present, strategy_listeners
from extproc.lab.experiment import Outcome, Row
from extproc.lab.stack import LocalStack
from extproc.lab.vllm import BLOCK_TOKENS, MODEL_NAME, vllm_servers
from extproc.lab.vllm_model import GENERATION_TOKENS, MESSAGE_TOKENS, words
from extproc.lab.workload import Conversation, Workload

PREFIXES = 6
ROUNDS = 4
PREFIX_TOKENS = 128 * BLOCK_TOKENS
"""As vLLM counts a prefix: whole blocks, since it shares no part of one."""
QUESTION_TOKENS = 11
ANSWER_TOKENS = 8


def repeated_prefixes(seed: str) -> Workload:
    """Each prefix once in each round, in random order, every time with another question.

    One request at a time, so that the time to first token is that of its own prefill.

    Args:
        seed: Of everything drawn; another seed shares no prefix with this one.
    """
    draw = random.Random(seed)
    prefixes = [words(draw, PREFIX_TOKENS - MESSAGE_TOKENS) for _ in range(PREFIXES)]
    conversations = []
    for _ in range(ROUNDS):
        for prefix in draw.sample(prefixes, k=PREFIXES):
            question = words(draw, QUESTION_TOKENS - MESSAGE_TOKENS - GENERATION_TOKENS)
            conversations.append(Conversation(0.0, prefix, [question], ANSWER_TOKENS))
    name = f"{PREFIXES} prefixes of {PREFIX_TOKENS:,} tokens x {ROUNDS} rounds, one at a time"
    return Workload(name, MODEL_NAME, conversations, concurrency=1)


def best_hit_rate() -> float:
    """Share of prompt tokens that are cached if each prefix is computed just once."""
    return (1 - 1 / ROUNDS) * PREFIX_TOKENS / (PREFIX_TOKENS + QUESTION_TOKENS)


async def run_vllm_demo(options: DemoOptions, python: Path, console: Console) -> list[Outcome]:
    """Run the demo against vLLM and print what it gave.

    Args:
        options: As for the demo; ``requests`` and ``rate`` are not used.
        python: The interpreter that can import vLLM.
        console: Where to print.

    Raises:
        StackError: If a part does not start or dies.
        ExperimentError: If the run cannot be measured.
    """
    logs = options.output / "logs"
    workloads = {name: repeated_prefixes(f"{options.seed} {name}") for name in STRATEGIES}
    console.print(
        f"Starting {options.replicas} vLLM servers with a tiny random Llama, then Envoy, Valkey "
        f"and {options.routers} routers; takes about a minute ..."
    )
    async with vllm_servers(options.replicas, logs, python) as servers:
        stack = LocalStack(
            strategy_listeners(STRATEGIES),
            routers=options.routers,
            addresses=[server.address for server in servers],
            folder=logs,
        )
        async with stack:
            outcomes = await compare(stack, workloads, console, reset=False)
    title = workloads[STRATEGIES[0]].name
    present(outcomes, options, console, title=title, bound=best_hit_rate())
    console.print(hits_and_misses([outcome.row for outcome in outcomes]))
    return outcomes


def hits_and_misses(rows: Sequence[Row]) -> Table:
    """Times to first token of requests whose prefix was cached, and of the others."""
    result = Table(title="Time to first token", title_justify="left", title_style="bold")
    result.add_column("strategy")
    for name in ("mean", "P50 of hits", "P50 of misses", "a hit is faster"):
        result.add_column(name, justify="right")
    for row in rows:
        hit, miss = row.ttft_hit_p50_s, row.ttft_miss_p50_s
        result.add_row(
            row.strategy,
            _milliseconds(row.ttft_mean_s),
            _milliseconds(hit),
            _milliseconds(miss),
            f"{miss / hit:.0f} times" if hit and miss else "",
        )
    return result


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1000:,.0f} ms"
