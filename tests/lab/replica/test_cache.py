import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from extproc.lab.replica.cache import BlockCache, chain_hashes


def test_hashes_cover_whole_blocks_and_all_before() -> None:
    text = bytes(range(256))
    hashes = chain_hashes(text)
    assert len(hashes) == 4
    assert chain_hashes(text[:200]) == hashes[:3]
    changed = chain_hashes(b"x" + text[1:])
    assert not set(changed) & set(hashes)
    assert not set(chain_hashes(text, b"salt")) & set(hashes)


def test_text_shorter_than_a_block_has_no_hash() -> None:
    assert chain_hashes(b"x" * 63) == []


def test_a_cache_has_at_least_one_block() -> None:
    with pytest.raises(ValueError, match="no block"):
        BlockCache(15)


def put(cache: BlockCache, *hashes: int) -> list[int]:
    """Let a sequence compute blocks with this content."""
    cache.take(len(hashes))
    return cache.name(hashes)


def test_content_stays_findable_after_its_release() -> None:
    cache = BlockCache(3 * 16)
    cache.release(put(cache, 100, 101), 0)
    assert cache.held_blocks == 0
    assert cache.cached_blocks == 2
    assert cache.lookup([100, 101, 102]) == 2
    assert cache.lookup([101]) == 1
    assert cache.lookup([102, 100]) == 0


def test_tails_are_evicted_before_heads_and_the_oldest_first() -> None:
    cache = BlockCache(4 * 16)
    for hashes in ((1, 2), (3, 4)):
        cache.release(put(cache, *hashes), 0)
    survivors = []
    for _ in range(4):
        cache.take(1)
        survivors.append([value for value in (1, 2, 3, 4) if cache.lookup([value])])
    assert survivors == [[1, 3, 4], [3, 4], [3], []]


def test_use_makes_content_young_again() -> None:
    cache = BlockCache(2 * 16)
    for value in (1, 2):
        cache.release(put(cache, value), 0)
    cache.hold([1])
    cache.release([1], 0)
    cache.take(1)
    assert cache.lookup([1])
    assert not cache.lookup([2])


def test_the_first_of_two_equal_blocks_is_the_one_found() -> None:
    cache = BlockCache(4 * 16)
    first = put(cache, 1)
    assert put(cache, 1) == []
    assert cache.held_blocks == 2
    cache.release([], 1)
    assert cache.held_blocks == 1
    assert cache.lookup([1])
    cache.release(first, 0)
    assert cache.spare_blocks == 4


def test_revived_blocks_count_as_taken() -> None:
    cache = BlockCache(3 * 16)
    cache.release(put(cache, 1, 2), 0)
    assert cache.fits([1, 2], 1)
    assert not cache.fits([1, 2], 2)
    cache.hold([1])
    assert cache.fits([1], 2)


def test_clearing_forgets_content_but_not_holds() -> None:
    cache = BlockCache(3 * 16)
    cache.release(put(cache, 1), 0)
    held = put(cache, 2)
    cache.clear()
    assert cache.lookup([1]) == 0
    assert cache.held_blocks == 1
    cache.release(held, 0)
    assert cache.spare_blocks == 3


class CacheMachine(RuleBasedStateMachine):
    """Sequences come and go; what they hold must stay theirs."""

    CAPACITY = 6

    def __init__(self) -> None:
        super().__init__()
        self.cache = BlockCache(self.CAPACITY * 16)
        self.held: list[tuple[list[int], list[int], int]] = []  # chain, named, nameless

    @rule(chain=st.integers(0, 2), length=st.integers(1, 5), twice=st.booleans())
    def begin(self, chain: int, length: int, twice: bool) -> None:
        hashes = [chain * 100 + index for index in range(length)]
        found = 0 if twice else self.cache.lookup(hashes)
        new = length - found
        if not self.cache.fits(hashes[:found], new):
            return
        self.cache.hold(hashes[:found])
        self.cache.take(new)
        named = hashes[:found] + self.cache.name(hashes[found:])
        self.held.append((hashes, named, length - len(named)))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        _, named, nameless = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.cache.release(named, nameless)

    @invariant()
    def capacity_is_never_exceeded(self) -> None:
        distinct = {value for _, named, _ in self.held for value in named}
        nameless = sum(count for _, _, count in self.held)
        assert self.cache.held_blocks == len(distinct) + nameless <= self.CAPACITY
        assert self.cache.cached_blocks + nameless <= self.CAPACITY

    @invariant()
    def held_content_is_never_evicted(self) -> None:
        for _, named, _ in self.held:
            assert all(self.cache.lookup([value]) for value in named)


CacheMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestCacheMachine = CacheMachine.TestCase
