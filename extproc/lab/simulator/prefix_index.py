"""Which replica was sent which prompt: the approximate index that peers keep in their routers."""

from collections import OrderedDict
from collections.abc import Sequence

from extproc.lab.replica.cache import BLOCK_TOKENS
from extproc.lab.simulator.calls import Call

STRIDE = 4
"""Blocks of 16 tokens that make one entry."""

UNIT = STRIDE * BLOCK_TOKENS
"""Tokens of an entry."""


def units(call: Call) -> Sequence[int]:
    """The ids of a prompt's whole units."""
    return call.chain[STRIDE - 1 : call.prompt_tokens // BLOCK_TOKENS : STRIDE]


class PrefixIndex:
    """Units of prompts by replica, the least recently sent of each replica forgotten first.

    Args:
        tokens: What to remember of each replica at most.
    """

    def __init__(self, tokens: int) -> None:
        self._limit = max(1, tokens // UNIT)
        self._holders: dict[int, dict[int, None]] = {}
        self._recent: dict[int, OrderedDict[int, None]] = {}

    def matched(self, call: Call, members: Sequence[int]) -> list[int]:
        """Tokens of the prompt that each member was sent before."""
        ids = units(call)
        known = 0
        while known < len(ids) and ids[known] in self._holders:
            known += 1
        found: dict[int, int] = {}
        for depth in range(known, 0, -1):
            for replica in self._holders[ids[depth - 1]]:
                found.setdefault(replica, depth)
            if len(found) >= len(members):
                break
        return [found.get(member, 0) * UNIT for member in members]

    def add(self, call: Call, replica: int) -> None:
        """Remember that a replica was sent a prompt."""
        recent = self._recent.setdefault(replica, OrderedDict())
        # From tail to head: what others can share is forgotten last.
        for value in reversed(units(call)):
            recent[value] = None
            recent.move_to_end(value)
            self._holders.setdefault(value, {})[replica] = None
        while len(recent) > self._limit:
            self._drop(recent.popitem(last=False)[0], replica)

    def size(self, replica: int) -> int:
        """Units remembered of a replica."""
        return len(self._recent.get(replica, ()))

    def forget(self, replica: int) -> None:
        """Forget all of a replica."""
        for value in self._recent.pop(replica, ()):
            self._drop(value, replica)

    def _drop(self, value: int, replica: int) -> None:
        holders = self._holders[value]
        del holders[replica]
        if not holders:
            del self._holders[value]
