"""A prefix cache of limited capacity in blocks of tokens, as vLLM's automatic prefix caching."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

import xxhash

BLOCK_TOKENS = 16
"""Tokens per block, vLLM's default."""

BYTES_PER_TOKEN = 4
"""Bytes of text that count as one token in the simulation."""


def chain_hashes(content: bytes, salt: bytes = b"") -> list[int]:
    """Hashes of the full blocks of a text; each covers everything before its block too.

    Args:
        content: Text, four bytes a token.
        salt: What separates equal texts (vLLM's ``cache_salt``, an adapter's name).

    Returns:
        One hash per full block, so a longer text's hashes begin with the shorter one's.
    """
    size = BLOCK_TOKENS * BYTES_PER_TOKEN
    previous = xxhash.xxh3_64_intdigest(salt)
    hashes = []
    for start in range(0, len(content) - size + 1, size):
        previous = xxhash.xxh3_64_intdigest(content[start : start + size], seed=previous)
        hashes.append(previous)
    return hashes


class BlockCache:
    """Blocks that sequences hold, and that stay findable by hash until they are needed again.

    A block is held (by one or more sequences), or free. Free blocks keep their content and are
    evicted in order of their release, a sequence's tail before its head, so that what others can
    share lives longest.

    Args:
        capacity_tokens: Rounded down to blocks; at least one block.
        block_tokens: Tokens per block.
    """

    def __init__(self, capacity_tokens: int, block_tokens: int = BLOCK_TOKENS) -> None:
        self.block_tokens = block_tokens
        self.capacity_blocks = capacity_tokens // block_tokens
        if self.capacity_blocks < 1:
            raise ValueError(
                f"a cache of {capacity_tokens} tokens has no block of {block_tokens} tokens"
            )
        self._holders = [0] * self.capacity_blocks
        self._hash: list[int | None] = [None] * self.capacity_blocks
        self._by_hash: dict[int, int] = {}
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(self.capacity_blocks))

    @property
    def held_blocks(self) -> int:
        """Blocks that at least one sequence holds."""
        return self.capacity_blocks - len(self._free)

    @property
    def cached_blocks(self) -> int:
        """Blocks that can be found by their hash, held or free."""
        return len(self._by_hash)

    def lookup(self, hashes: Sequence[int]) -> list[int]:
        """The blocks of the longest cached prefix of ``hashes``."""
        blocks = []
        for value in hashes:
            block = self._by_hash.get(value)
            if block is None:
                break
            blocks.append(block)
        return blocks

    def hold(self, blocks: Iterable[int]) -> None:
        """Let one more sequence hold ``blocks``, which are cached."""
        for block in blocks:
            if self._holders[block] == 0:
                del self._free[block]
            self._holders[block] += 1

    def can_take(self, cached: Iterable[int], new: int) -> bool:
        """Whether ``cached`` blocks can be held and ``new`` ones allocated beside them."""
        revived = sum(self._holders[block] == 0 for block in cached)
        return revived + new <= len(self._free)

    def allocate(self, count: int) -> list[int] | None:
        """Hold ``count`` blocks with no content, evicting as needed; None if too few are free."""
        if count > len(self._free):
            return None
        blocks = []
        for _ in range(count):
            block, _ = self._free.popitem(last=False)
            self._forget(block)
            self._holders[block] = 1
            blocks.append(block)
        return blocks

    def commit(self, block: int, value: int) -> None:
        """Say that a held block now has the content with this hash.

        When two sequences computed the same content, the first one's block is the one found.
        """
        if value not in self._by_hash:
            self._by_hash[value] = block
            self._hash[block] = value

    def release(self, blocks: Sequence[int]) -> None:
        """End one sequence's hold on its ``blocks``, given from head to tail."""
        for block in reversed(blocks):
            self._holders[block] -= 1
            if self._holders[block] == 0:
                self._free[block] = None
                if self._hash[block] is None:
                    self._free.move_to_end(block, last=False)

    def clear(self) -> None:
        """Forget all content; holds stay."""
        self._by_hash.clear()
        self._hash = [None] * self.capacity_blocks

    def _forget(self, block: int) -> None:
        value = self._hash[block]
        if value is not None:
            del self._by_hash[value]
            self._hash[block] = None
