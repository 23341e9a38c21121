"""A prefix cache of limited capacity in blocks of tokens, as vLLM's automatic prefix caching."""

from collections import OrderedDict
from collections.abc import Sequence

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
    share lives longest. Blocks are counted, not numbered: those with content are known by its hash,
    those without are all alike.

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
        self._holders: dict[int, int] = {}
        self._free: OrderedDict[int, None] = OrderedDict()
        self._nameless = 0

    @property
    def held_blocks(self) -> int:
        """Blocks that at least one sequence holds."""
        return len(self._holders) + self._nameless

    @property
    def spare_blocks(self) -> int:
        """Blocks that nobody holds."""
        return self.capacity_blocks - len(self._holders) - self._nameless

    @property
    def cached_blocks(self) -> int:
        """Blocks that can be found by their hash, held or free."""
        return len(self._holders) + len(self._free)

    def __contains__(self, value: int) -> bool:
        """Whether a block with this hash can be found."""
        return value in self._holders or value in self._free

    def lookup(self, hashes: Sequence[int]) -> int:
        """How many blocks the longest cached prefix of ``hashes`` has."""
        holders, free = self._holders, self._free
        for index, value in enumerate(hashes):
            if value not in holders and value not in free:
                return index
        return len(hashes)

    def fits(self, hashes: Sequence[int], new: int) -> bool:
        """Whether cached blocks can be held and ``new`` ones taken beside them."""
        revived = sum(value in self._free for value in hashes)
        return revived + new <= self.spare_blocks

    def hold(self, hashes: Sequence[int]) -> None:
        """Let one more sequence hold blocks that are cached."""
        holders, free = self._holders, self._free
        for value in hashes:
            count = holders.get(value)
            if count is None:
                del free[value]
                holders[value] = 1
            else:
                holders[value] = count + 1

    def take(self, count: int) -> None:
        """Hold ``count`` spare blocks without content, evicting as needed."""
        self._nameless += count
        excess = len(self._holders) + self._nameless + len(self._free) - self.capacity_blocks
        for _ in range(excess):
            self._free.popitem(last=False)

    def name(self, hashes: Sequence[int]) -> list[int]:
        """Say that blocks which were taken have the content with these hashes.

        When two sequences computed the same content, the first one's block is the one found, and
        the second one's stays without a name.

        Returns:
            The hashes that got a block.
        """
        holders, free = self._holders, self._free
        named = [value for value in hashes if value not in holders and value not in free]
        holders.update(dict.fromkeys(named, 1))
        self._nameless -= len(named)
        return named

    def release(self, named: Sequence[int], nameless: int) -> None:
        """End one sequence's hold on its blocks.

        Args:
            named: Hashes of the blocks with content that it holds, from head to tail.
            nameless: How many others it holds.
        """
        holders, free = self._holders, self._free
        for value in reversed(named):
            count = holders[value]
            if count == 1:
                del holders[value]
                free[value] = None
            else:
                holders[value] = count - 1
        self._nameless -= nameless

    def clear(self) -> None:
        """Forget the content of free blocks, as vLLM does; what is held stays."""
        self._free.clear()
