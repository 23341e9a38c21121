"""Several policies and seeds over one setup, on all processors."""

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing.sharedctypes import Synchronized
from typing import Any

from extproc.lab.simulator.loop import Records
from extproc.lab.simulator.results import Row, summarize
from extproc.lab.simulator.trial import Setup, simulate

POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Outcome:
    """One policy's row, and what it was made from.

    Attributes:
        row: The averages.
        runs: The records of each seed, in order of the seeds.
    """

    row: Row
    runs: Sequence[Records]


_sent: "Synchronized[int] | None" = None


def _begin(sent: "Synchronized[int]") -> None:
    global _sent  # noqa: PLW0603  # a worker process counts for its parent
    _sent = sent


def _count(requests: int) -> None:
    if _sent is not None:
        with _sent.get_lock():
            _sent.value += requests


def _run(setup: Setup, strategy: str, seed: int) -> Records:
    return simulate(setup, strategy, seed, _count)


def study(
    setup: Setup,
    strategies: Sequence[str],
    seeds: Sequence[int],
    *,
    jobs: int,
    progress: Callable[[int], None] = lambda _: None,
) -> list[Outcome]:
    """Run every policy with every seed.

    Args:
        setup: What and on what.
        strategies: Of ``trial.STRATEGIES``.
        seeds: At least one.
        jobs: Processes that run at once; 1 runs in this one.
        progress: Called now and then with the number of requests sent so far.
    """
    runs = [(strategy, seed) for strategy in strategies for seed in seeds]
    if jobs == 1:
        done = 0

        def count(requests: int) -> None:
            nonlocal done
            done += requests
            progress(done)

        records = [simulate(setup, strategy, seed, count) for strategy, seed in runs]
    else:
        records = _in_parallel(setup, runs, jobs, progress)
    outcomes = []
    for index, strategy in enumerate(strategies):
        own = records[index * len(seeds) : (index + 1) * len(seeds)]
        outcomes.append(Outcome(summarize(strategy, setup.replicas, own), own))
    return outcomes


def _in_parallel(
    setup: Setup, runs: Sequence[tuple[str, int]], jobs: int, progress: Callable[[int], None]
) -> list[Records]:
    context = multiprocessing.get_context("spawn")
    sent: Any = context.Value("Q", 0)
    with ProcessPoolExecutor(
        jobs, mp_context=context, initializer=_begin, initargs=(sent,)
    ) as pool:
        futures: list[Future[Records]] = [pool.submit(_run, setup, *run) for run in runs]
        waiting = set(futures)
        try:
            while waiting:
                done, waiting = wait(waiting, timeout=POLL_S, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()
                progress(sent.value)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [future.result() for future in futures]
