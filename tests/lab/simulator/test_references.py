import random
from collections.abc import Sequence

import pytest

from extproc.lab.replica.latency import PROFILES
from extproc.lab.replica.request import Request
from extproc.lab.simulator.calls import Call
from extproc.lab.simulator.fleet import Fleet
from extproc.lab.simulator.references import REFERENCES, Reference

ALL = range(4)


def make(name: str) -> Reference:
    return REFERENCES[name](Fleet(PROFILES["llama-3.1-70b/8xh100"], 4), random.Random(1))


class Numbers:
    def __init__(self) -> None:
        self.next = 0

    def call(self, chain: Sequence[int], tokens: int = 1024) -> Call:
        self.next += 1
        return Call(0.0, chain, tokens, 10, number=self.next)


def compute(router: Reference, replica: int, chain: Sequence[int]) -> None:
    """Let a replica's cache hold a prompt, without the router's doing."""
    engine = router.fleet.engines[replica]
    engine.add(Request("x", len(chain) * 16, 1, chain))
    while engine.step(0.0):
        pass


PROMPT = range(1, 65)


@pytest.mark.parametrize("name", REFERENCES)
def test_books_are_even_when_all_has_ended(name: str) -> None:
    router, numbers = make(name), Numbers()
    calls = [numbers.call(PROMPT) for _ in range(20)]
    for call in calls:
        assert router.choose(call, [1, 3]) in (1, 3)
    assert sum(router.in_flight) == 20
    for call in calls:
        router.first_token(call)
        router.ended(call)
    assert router.in_flight == [0] * 4
    assert router.pending == [0] * 4
    router.left(1)
    assert router.choose(numbers.call(PROMPT), [0]) == 0


@pytest.mark.parametrize(
    "name", ["longest_match_3_2", "cache_aware", "within_one_sigma", "bounded_hash"]
)
def test_the_same_prompt_goes_where_it_went(name: str) -> None:
    router, numbers = make(name), Numbers()
    chosen = set()
    for _ in range(10):
        call = numbers.call(PROMPT)
        chosen.add(router.choose(call, ALL))
        router.first_token(call)
        router.ended(call)
    assert len(chosen) == 1


def test_a_queue_outweighs_a_short_match() -> None:
    router, numbers = make("longest_match_3_2"), Numbers()
    home = router.choose(numbers.call(PROMPT), ALL)
    for number in range(5):
        router.fleet.engines[home].add(Request(str(number), 10, 1))
    router.fleet.now_s = 1.0  # the metrics are read again
    half = [*range(1, 33), *range(500, 532)]
    assert router.choose(numbers.call(PROMPT), ALL) == home  # 3 against 2
    assert router.choose(numbers.call(half), ALL) != home  # 1.5 against 2


def test_cache_aware_takes_the_smallest_tree_below_its_threshold() -> None:
    router, numbers = make("cache_aware"), Numbers()
    home = router.choose(numbers.call(PROMPT), ALL)
    quarter = [*range(1, 17), *range(500, 548)]
    assert router.choose(numbers.call(quarter), ALL) != home


def test_cache_aware_takes_the_shortest_queue_when_uneven() -> None:
    router, numbers = make("cache_aware"), Numbers()
    first = [router.choose(numbers.call(PROMPT), ALL) for _ in range(66)]
    assert len(set(first[:65])) == 1
    assert first[65] != first[0]


def test_within_one_sigma_leaves_a_busy_match() -> None:
    router, numbers = make("within_one_sigma"), Numbers()
    home = router.choose(numbers.call(PROMPT), ALL)
    router.in_flight = [1] * 4
    assert router.choose(numbers.call(PROMPT), ALL) == home
    router.in_flight = [1] * 4
    router.in_flight[home] = 6  # the mean is 2.25, the deviation 2.2
    assert router.choose(numbers.call(PROMPT), ALL) != home


def test_block_cost_counts_what_decodes_and_what_is_queued() -> None:
    router, numbers = make("block_cost"), Numbers()
    compute(router, 2, PROMPT)
    first = numbers.call(PROMPT)
    assert router.choose(first, ALL) == 2
    # The 16 bytes that are always computed cost less than a prefill elsewhere.
    assert router.choose(numbers.call(PROMPT), ALL) == 2
    # Another prompt's prefill costs the same everywhere; replica 2 decodes already.
    assert router.choose(numbers.call(range(500, 564)), ALL) != 2


def test_bounded_hash_bounds_the_load() -> None:
    router, numbers = make("bounded_hash"), Numbers()
    for _ in range(40):
        router.choose(numbers.call(PROMPT), ALL)
    assert max(router.in_flight) == 13  # 1.25 of the mean, rounded up
    assert sum(router.in_flight) == 40


def test_prefill_times_batch_multiplies() -> None:
    router, numbers = make("prefill_times_batch"), Numbers()
    call, matched = numbers.call(PROMPT), [768, 0, 0, 0]
    router.in_flight = [4, 1, 1, 1]
    assert router.pick(call, ALL, matched) == 0  # 256 x 5 against 1,024 x 2
    router.in_flight = [9, 1, 1, 1]
    assert router.pick(call, ALL, matched) != 0  # 256 x 10 against 1,024 x 2
    router.pending = [0, 4000, 4000, 0]
    assert router.pick(call, ALL, matched) == 3


def test_the_oracle_knows_caches_and_queues() -> None:
    router, numbers = make("oracle"), Numbers()
    compute(router, 3, PROMPT)
    assert router.choose(numbers.call(PROMPT), ALL) == 3
    other = range(500, 564)
    queued = router.choose(numbers.call(other), [0, 1])
    # Not in the cache yet, but it will be.
    assert router.choose(numbers.call(other), [0, 1]) == queued
