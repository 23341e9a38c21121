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


def test_content_stays_findable_after_its_release() -> None:
    cache = BlockCache(3 * 16)
    blocks = cache.allocate(2)
    assert blocks is not None
    cache.commit(blocks[0], 100)
    cache.commit(blocks[1], 101)
    cache.release(blocks)
    assert cache.held_blocks == 0
    assert cache.lookup([100, 101, 102]) == blocks
    assert cache.lookup([101]) == [blocks[1]]
    assert cache.lookup([102, 100]) == []


def test_tails_are_evicted_before_heads_and_the_oldest_first() -> None:
    cache = BlockCache(4 * 16)
    for hashes in ((1, 2), (3, 4)):
        blocks = cache.allocate(2)
        assert blocks is not None
        for block, value in zip(blocks, hashes, strict=True):
            cache.commit(block, value)
        cache.release(blocks)
    survivors = []
    for _ in range(4):
        cache.allocate(1)
        survivors.append([value for value in (1, 2, 3, 4) if cache.lookup([value])])
    assert survivors == [[1, 3, 4], [3, 4], [3], []]


def test_use_makes_content_young_again() -> None:
    cache = BlockCache(2 * 16)
    for value in (1, 2):
        blocks = cache.allocate(1)
        assert blocks is not None
        cache.commit(blocks[0], value)
        cache.release(blocks)
    used = cache.lookup([1])
    cache.hold(used)
    cache.release(used)
    cache.allocate(1)
    assert cache.lookup([1])
    assert not cache.lookup([2])


def test_clearing_forgets_content_but_not_holds() -> None:
    cache = BlockCache(2 * 16)
    blocks = cache.allocate(1)
    assert blocks is not None
    cache.commit(blocks[0], 1)
    cache.clear()
    assert cache.lookup([1]) == []
    assert cache.held_blocks == 1
    cache.release(blocks)
    assert cache.allocate(2) is not None


class CacheMachine(RuleBasedStateMachine):
    """Sequences come and go; what they hold must stay theirs."""

    CAPACITY = 6

    def __init__(self) -> None:
        super().__init__()
        self.cache = BlockCache(self.CAPACITY * 16)
        self.held: list[list[int]] = []
        self.content: dict[int, int] = {}  # block to hash, of held blocks

    @rule(chain=st.integers(0, 2), length=st.integers(1, 5))
    def begin(self, chain: int, length: int) -> None:
        hashes = [chain * 100 + index for index in range(length)]
        blocks = self.cache.lookup(hashes)
        new = length - len(blocks)
        possible = self.cache.can_take(blocks, new)
        if not possible:
            return
        self.cache.hold(blocks)
        fresh = self.cache.allocate(new)
        assert fresh is not None
        assert not set(fresh) & {block for owned in self.held for block in owned}
        for block, value in zip([*blocks, *fresh], hashes, strict=True):
            self.cache.commit(block, value)
            self.content[block] = value
        self.held.append([*blocks, *fresh])

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        blocks = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.cache.release(blocks)

    @invariant()
    def capacity_is_never_exceeded(self) -> None:
        distinct = {block for blocks in self.held for block in blocks}
        assert self.cache.held_blocks == len(distinct) <= self.CAPACITY
        assert self.cache.cached_blocks <= self.CAPACITY

    @invariant()
    def held_content_is_never_evicted(self) -> None:
        for blocks in self.held:
            for block in blocks:
                assert self.cache.lookup([self.content[block]])


CacheMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestCacheMachine = CacheMachine.TestCase
