"""Where in the prompt bytes the checkpoints are."""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

MIN_STEP: Final = 256


def checkpoints() -> Iterator[int]:
    """All checkpoint positions in bytes, ascending, endless.

    A position p is one exactly if p mod max(256, 2^floor(log2(p/8))) = 0: at least 8 and less than
    16 in each octave.
    """
    position = MIN_STEP
    while True:
        yield position
        position += max(MIN_STEP, 1 << (position.bit_length() - 4))


def _positions_below(end: int) -> tuple[int, ...]:
    positions = []
    for position in checkpoints():
        if position >= end:
            break
        positions.append(position)
    return tuple(positions)


_POSITIONS: Final = _positions_below(1 << 40)


def checkpoint_positions(size: int) -> tuple[int, ...]:
    """The checkpoints of ``size`` prompt bytes (below a tebibyte), ascending; none below 256."""
    return _POSITIONS[: bisect_right(_POSITIONS, size)]
