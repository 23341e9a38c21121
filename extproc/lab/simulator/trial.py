"""One run: a workload, a fleet, a policy and a seed."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from extproc.lab.replica.cache import BLOCK_TOKENS
from extproc.lab.replica.latency import DEFAULT_PROFILE, PROFILES
from extproc.lab.simulator.calls import Workload
from extproc.lab.simulator.fleet import Fleet
from extproc.lab.simulator.loop import Records, Simulation
from extproc.lab.simulator.ours import StoreRouter, new_store
from extproc.lab.simulator.policies import Router
from extproc.lab.simulator.references import REFERENCES
from extproc.lab.simulator.traces import ANSWER_TOKENS, read_trace
from extproc.lab.simulator.workloads import WORKLOADS
from extproc.pool_settings import PREFIX, parse
from extproc.routing import Strategy

STRATEGIES = (*map(str, reversed(Strategy)), *REFERENCES)
"""Names of all policies, those that serve traffic first."""


@dataclass(frozen=True, slots=True)
class Setup:
    """All that decides what a run gives, but for the policy and the seed.

    Attributes:
        source: A built-in workload's name or a trace's path.
        replicas: How many.
        routers: How many; requests are spread over them at random.
        shared: Whether the routers share one state, or each has its own.
        profile: A key of ``latency.PROFILES``.
        rate_scale: How many times faster to send.
        cache_tokens: Capacity of each replica's cache; 0: the profile's.
        limit: Requests; 0: all of a trace, a built-in workload's own number.
        pool: Of a decision log with several, the one to read.
        output_tokens: Of answers in a log that does not tell.
        settings: The pool's settings by key, without the prefix.
    """

    source: str
    replicas: int = 8
    routers: int = 1
    shared: bool = True
    profile: str = DEFAULT_PROFILE
    rate_scale: float = 1.0
    cache_tokens: int = 0
    limit: int = 0
    pool: str = ""
    output_tokens: int = ANSWER_TOKENS
    settings: Mapping[str, str] = field(default_factory=dict)


def workload(setup: Setup, seed: int) -> Workload:
    """What a run sends.

    Raises:
        TraceError: If a trace cannot be read.
        OSError: If it is not there.
    """
    build = WORKLOADS.get(setup.source)
    if build is None:
        return read_trace(
            Path(setup.source),
            rate_scale=setup.rate_scale,
            limit=setup.limit,
            pool=setup.pool,
            output_tokens=setup.output_tokens,
        )
    return build(random.Random(seed), setup.replicas, setup.rate_scale, setup.limit)


def simulate(
    setup: Setup, strategy: str, seed: int, progress: Callable[[int], None] = lambda _: None
) -> Records:
    """Run one policy once. The same arguments give the same records.

    Args:
        setup: What and on what.
        strategy: One of ``STRATEGIES``.
        seed: Of the workload, of ties, and of who goes through which router. It seeds the global
            generator too, from which the code that serves traffic draws.
        progress: Called now and then with the number of requests that were sent since.
    """
    return run(setup, workload(setup, seed), strategy, seed, progress)


def run(
    setup: Setup,
    sent: Workload,
    strategy: str,
    seed: int,
    progress: Callable[[int], None] = lambda _: None,
) -> Records:
    """Run one policy once on calls that are at hand; see ``simulate``.

    Args:
        setup: On what; its source does not count.
        sent: Its calls are used up.
        strategy: One of ``STRATEGIES``.
        seed: Of ties, and of who goes through which router.
        progress: Called now and then with the number of requests that were sent since.
    """
    random.seed(seed)
    fleet = Fleet(PROFILES[setup.profile], setup.replicas, setup.cache_tokens)

    if strategy in REFERENCES:
        routers = _references(setup, fleet, strategy, seed)
    else:
        routers = _ours(setup, fleet, strategy)
    return Simulation(fleet, routers, seed=seed).run(sent, progress)


def _references(setup: Setup, fleet: Fleet, strategy: str, seed: int) -> Sequence[Router]:
    def router(number: int) -> Router:
        return REFERENCES[strategy](fleet, random.Random(f"{seed}/{number}"))

    if setup.shared:
        return [router(0)] * setup.routers
    return [router(number) for number in range(setup.routers)]


def _ours(setup: Setup, fleet: Fleet, strategy: str) -> Sequence[Router]:
    """Routers that share a store, or have one each."""
    # As engines tell in their metrics; an operator can look it up there too.
    known = {"cache-tokens": str(fleet.cache_tokens)}
    metadata = {"strategy": strategy, **known, **setup.settings}
    settings = parse([(PREFIX + key, value) for key, value in metadata.items()]).settings
    if setup.shared or setup.routers == 1:
        store = new_store(fleet, routers=1)
        return [StoreRouter(fleet, settings, store, str(number)) for number in range(setup.routers)]
    return [
        StoreRouter(fleet, settings, new_store(fleet, routers=setup.routers))
        for _ in range(setup.routers)
    ]


def infinite_cache_hit_rate(sent: Workload) -> float:
    """Share of prompt tokens that one replica with an endless cache would find in it.

    Args:
        sent: Its calls are used up. Conversations count one after the other.
    """
    seen: set[int] = set()
    queries = hits = 0
    for first in sent.calls:
        call = first
        while True:
            queries += call.prompt_tokens
            for value in call.chain[: (call.prompt_tokens - 1) // BLOCK_TOKENS]:
                if value not in seen:
                    break
                hits += BLOCK_TOKENS
            seen.update(call.chain)
            if call.then is None:
                break
            call = call.then[1]
    return hits / queries if queries else 0.0
