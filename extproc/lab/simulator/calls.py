"""What is sent in a simulation: prompts as chains of blocks, never text."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from extproc.lab.replica.cache import BLOCK_TOKENS, BYTES_PER_TOKEN
from extproc.prompt.checkpoints import checkpoint_positions
from extproc.prompt.model import Fingerprint

BLOCK_BYTES = BLOCK_TOKENS * BYTES_PER_TOKEN
_TIE_BYTES = 256


@dataclass(slots=True, eq=False)
class Call:
    """One request.

    Attributes:
        at_s: When it is sent, in seconds from the start; of a later turn set when that is known.
        chain: Ids of the full blocks of 16 tokens of the prompt, and of the answer where a later
            turn repeats it. Equal ids, equal text up to there. Blocks behind the chain are like
            no other.
        prompt_tokens: At least 1.
        output_tokens: At least 1.
        then: The next turn, and the pause before it after this one's end.
        number: Counts the calls of a run, in order of sending.
    """

    at_s: float
    chain: Sequence[int]
    prompt_tokens: int
    output_tokens: int
    then: "tuple[float, Call] | None" = None
    number: int = -1


@dataclass(frozen=True, slots=True)
class Change:
    """A replica comes or goes.

    Attributes:
        at_s: When.
        replica: Its number, from 0.
        present: Whether it is there from then on. Who leaves answers what it has; who comes back
            has an empty cache.
    """

    at_s: float
    replica: int
    present: bool


@dataclass(frozen=True, slots=True)
class Workload:
    """What to simulate.

    Attributes:
        name: One line for reports.
        calls: First turns in order of time; read once.
        requests: How many requests it has, over all turns.
        changes: In order of time.
        absent: Numbers of replicas that are not there at the start.
    """

    name: str
    calls: Iterable[Call]
    requests: int
    changes: Sequence[Change] = ()
    absent: frozenset[int] = frozenset()


class Blocks:
    """Hands out ids of blocks that are like no other."""

    def __init__(self) -> None:
        self._next = 1

    def fresh(self, blocks: int) -> range:
        """So many new ids."""
        start = self._next
        self._next += blocks
        return range(start, self._next)

    def extend(self, head: Sequence[int], head_tokens: int, tokens: int) -> list[int]:
        """The chain of a text of ``tokens`` whose first ``head_tokens`` have the chain ``head``."""
        shared = list(head[: head_tokens // BLOCK_TOKENS])
        return shared + list(self.fresh(tokens // BLOCK_TOKENS - len(shared)))


_NAMELESS = 1 << 64
"""Beyond all ids of blocks."""


def fingerprint(call: Call, *, prefix_length: int = 4096) -> Fingerprint:
    """What a router makes of a call's prompt, at four bytes a token.

    Checkpoints are whole multiples of blocks, so a block's id stands for the hash of all before
    its end.

    Args:
        call: The request.
        prefix_length: Bytes of the prompt that make the key of ``prefix_aware``.
    """
    chain = call.chain
    known = min(call.prompt_tokens, len(chain) * BLOCK_TOKENS)
    positions = checkpoint_positions(known * BYTES_PER_TOKEN)
    hashes = tuple(
        [chain[position // BLOCK_BYTES - 1].to_bytes(16, "little") for position in positions]
    )
    return Fingerprint(
        positions=positions,
        hashes=hashes,
        tokens=tuple([position // BYTES_PER_TOKEN for position in positions]),
        total_tokens=call.prompt_tokens,
        tie=hashes[0] if hashes else head_key(call, _TIE_BYTES),
        sticky=head_key(call, prefix_length),
    )


def head_key(call: Call, size: int) -> bytes:
    """16 bytes that stand for the first ``size`` bytes of a prompt, to the end of a block."""
    blocks = min(-(-size // BLOCK_BYTES), call.prompt_tokens // BLOCK_TOKENS, len(call.chain))
    value = call.chain[blocks - 1] if blocks else _NAMELESS + call.number
    return value.to_bytes(16, "little")
