"""What is sent: prompts of some lengths, new or known, from one client or from many."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from extproc.lab.overhead.client import SERIAL
from extproc.lab.overhead.echo import MODEL

UNIQUE, REPEATED = "unique", "repeated"
PREFIXES = (UNIQUE, REPEATED)

_REPEATED_SHARE = 7 / 8
_HALVING_KB = 64
_LINE = 80
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of load.

    Attributes:
        size_kb: Of a request's body, in 1,000 bytes.
        prefix: ``unique``: prompts differ from their first character on. ``repeated``: they begin
            with the same 7/8.
        clients: Requests under way at any time.
    """

    size_kb: int
    prefix: str
    clients: int

    @property
    def name(self) -> str:
        """For tables."""
        return f"{self.size_kb} kB, {self.prefix}, {self.clients} at a time"

    def requests(self, base: int) -> int:
        """How many to send where ``base`` short ones would be sent: fewer of long ones."""
        return max(round(base / (1 + self.size_kb / _HALVING_KB)), self.clients, 2)


def all_cases(
    sizes_kb: tuple[int, ...], prefixes: tuple[str, ...], clients: tuple[int, ...]
) -> list[Case]:
    """Every combination."""
    return [Case(*each) for each in product(sizes_kb, prefixes, clients)]


def body_parts(case: Case, seed: int) -> tuple[bytes, bytes]:
    """What of a chat's body precedes and follows the serial number of a request.

    Args:
        case: For its size and prefix.
        seed: Of the text.
    """
    mark = "\0"
    content = [{"role": "user", "content": mark}]
    frame = json.dumps({"model": MODEL, "messages": content, "max_tokens": 1})
    opening, closing = frame.split(json.dumps(mark)[1:-1])
    text = _text(case.size_kb * 1000 - len(opening) - len(closing) - SERIAL, seed)
    cut = 0 if case.prefix == UNIQUE else int(len(text) * _REPEATED_SHARE) // 2 * 2
    return (opening + text[:cut]).encode(), (text[cut:] + closing).encode()


def _text(size: int, seed: int) -> str:
    """Words in lines, as they stand in JSON: exactly ``size`` characters, each at an even place.

    Args:
        size: In characters of JSON.
        seed: Another text for each.
    """
    draw = random.Random(seed)
    text = "".join(_lines(size, draw))[: size // 2 * 2]
    return text.removesuffix("\\").ljust(size, "x")


def _lines(size: int, draw: random.Random) -> Iterator[str]:
    done = 0
    while done < size:
        words: list[str] = []
        while sum(map(len, words)) + len(words) < _LINE:
            words.append("".join(draw.choices(_LETTERS, k=draw.randint(2, 9))))
        line = " ".join(words)
        line += "\\n" if len(line) % 2 == 0 else " \\n"
        done += len(line)
        yield line
