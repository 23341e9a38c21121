"""A choice by a router that shares nothing with the others of its pool.

It sees a part of the traffic. What that part tells of the load is less than there is, and what it
tells of caches is less than they hold: other routers' requests filled them too. Both are made up
for, by figures that the simulator found best (docs/simulator.md, routers that share nothing).
"""

from math import isqrt
from typing import NamedTuple, Self

WHOLE = 1000
"""Of what is given in thousandths."""

_PULL = WHOLE * 2 // 3
_ENOUGH = 4
"""One part in four that was known before is enough for the whole pull."""

_MEMORY = 32
"""Prompts after which a third is left of what was before them."""


class Apart(NamedTuple):
    """What a router that sees a part makes up for.

    Attributes:
        home: Position of the replica to which all routers send what begins like this prompt.
        pull: Thousandths of its own prefill that the prompt is spared at its home: other routers'
            requests probably filled its cache, and will find there what this one adds.
        load: Thousandths of the load seen at a replica that are taken to be there.
    """

    home: int
    pull: int
    load: int

    @classmethod
    def of(cls, home: int, familiar: int, routers: int) -> Self:
        """Among so many routers, this one counted; ``familiar`` as of ``Familiarity``.

        The load is seen by chance as much as by share: between all that was seen and as many times
        that as there are routers, so the root of their number.
        """
        pull = min(_PULL, _PULL * _ENOUGH * familiar // WHOLE)
        return cls(home, pull, isqrt(WHOLE * WHOLE * routers))


class Familiarity:
    """How much of the prompts of late was held by some replica.

    Where prompts share nothing no home has anything to offer, and load alone should count.
    """

    __slots__ = ("_share",)

    def __init__(self) -> None:
        self._share = WHOLE / _ENOUGH

    @property
    def share(self) -> int:
        """Thousandths of their tokens."""
        return int(self._share)

    def take_in(self, known: int, total: int) -> None:
        """A prompt of ``total`` tokens, of which the best replica held ``known``."""
        if total:
            self._share += (WHOLE * known / total - self._share) / _MEMORY
