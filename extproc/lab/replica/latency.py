"""How long one step of a model server takes.

The figures are estimates of NVIDIA AIConfigurator 0.12 (from measured vLLM kernels) for
Llama-3.1-70B in bf16 with tensor parallelism 8. Between them times are interpolated linearly, and
beyond them the last line goes on.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple


class Curve:
    """The line through points; below the first its value holds, beyond the last the line goes on.

    Args:
        points: Pairs of an argument and a value, ascending by argument, at least two.
    """

    def __init__(self, *points: tuple[int, float]) -> None:
        self._arguments = [argument for argument, _ in points]
        self._values = [value for _, value in points]

    def at(self, argument: float) -> float:
        """The value at ``argument``."""
        arguments, values = self._arguments, self._values
        if argument <= arguments[0]:
            return values[0]
        right = min(bisect_right(arguments, argument), len(arguments) - 1)
        left = right - 1
        slope = (values[right] - values[left]) / (arguments[right] - arguments[left])
        return values[left] + slope * (argument - arguments[left])


class Chunk(NamedTuple):
    """Prompt tokens that one step prefills.

    Attributes:
        new: Tokens to prefill.
        context: Tokens before them, cached or prefilled earlier.
    """

    new: int
    context: int


class DecodeRun(NamedTuple):
    """Iterations of the same sequences, each of which gains one token per iteration.

    Attributes:
        first_s: How long the first iteration takes.
        growth_s: How much longer each next one takes.
        iterations: For how many iterations that holds.
    """

    first_s: float
    growth_s: float
    iterations: int


@dataclass(frozen=True, eq=False)
class Profile:
    """Step times of one model on one machine, and how its server is set up there.

    Attributes:
        name: ``model/machine``.
        prefill: Milliseconds for so many tokens of one prompt with nothing before them; for none:
            the reading of the weights.
        attention: By tokens of context: what each pair of a new token and a token before it adds,
            in milliseconds. Cached tokens are not free.
        contexts: The contexts of ``decode``, ascending, in tokens.
        decode: By number of sequences: milliseconds per step at each of ``contexts``.
        kv_tokens: Tokens whose keys and values fit beside the weights.
        batch_tokens: Tokens that one step may compute.
        max_sequences: Sequences that may run at once.
    """

    name: str
    prefill: Curve
    attention: Curve
    contexts: tuple[int, ...]
    decode: tuple[tuple[int, tuple[float, ...]], ...]
    kv_tokens: int
    batch_tokens: int
    max_sequences: int
    _rows: dict[int, tuple[float, ...]] = field(default_factory=dict, init=False, repr=False)

    @property
    def weights_s(self) -> float:
        """Seconds that every step takes at least: the reading of the weights."""
        return self.prefill.at(0) / 1000

    def prefill_s(self, chunks: Sequence[Chunk]) -> float:
        """Seconds of a step that prefills ``chunks``, at least one, and decodes nothing.

        Linear layers see the tokens of all chunks together; attention only each chunk's own.
        """
        total = sum(chunk.new for chunk in chunks)
        milliseconds = self.prefill.at(total)
        if len(chunks) > 1:
            milliseconds -= self._own_attention(total)
            milliseconds += sum(self._own_attention(chunk.new) for chunk in chunks)
        for new, context in chunks:
            if context:
                milliseconds += new * context * self.attention.at(context)
        return milliseconds / 1000

    def decode_run(self, sequences: int, context: int) -> DecodeRun:
        """Iterations in which ``sequences``, at least one, decode one token each.

        Args:
            sequences: How many.
            context: Tokens before the ones to decode, of all sequences together.
        """
        row = self._row(sequences)
        knots = self.contexts
        mean = context / sequences
        cell = min(max(bisect_right(knots, mean) - 1, 0), len(knots) - 2)
        growth = (row[cell + 1] - row[cell]) / (knots[cell + 1] - knots[cell])
        first = row[cell] + (mean - knots[cell]) * growth
        last_cell = cell == len(knots) - 2
        iterations = 1 << 30 if last_cell else int(knots[cell + 1] - mean) + 1
        return DecodeRun(first / 1000, growth / 1000, iterations)

    def step_s(self, prefills: Sequence[Chunk], sequences: int = 0, context: int = 0) -> float:
        """Seconds that one step takes.

        The weights are read once per step, so a step that both prefills and decodes pays for them
        once.

        Args:
            prefills: What the step prefills.
            sequences: How many sequences decode one token each.
            context: Tokens before those, of all the decoding sequences together.
        """
        if not sequences:
            return self.prefill_s(prefills) if prefills else 0.0
        decode = self.decode_run(sequences, context).first_s
        return self.prefill_s(prefills) + decode - self.weights_s if prefills else decode

    def _own_attention(self, tokens: int) -> float:
        """Milliseconds of attention of so many tokens among themselves."""
        return tokens * tokens / 2 * self.attention.at(tokens)

    def _row(self, sequences: int) -> tuple[float, ...]:
        row = self._rows.get(sequences)
        if row is None:
            row = self._rows[sequences] = tuple(
                Curve(*((size, times[knot]) for size, times in self.decode)).at(sequences)
                for knot in range(len(self.contexts))
            )
        return row


_CONTEXTS = (1024, 4096, 8192, 16384)

_H100 = Profile(
    name="llama-3.1-70b/8xh100",
    # Of none: what the times of decoding leave for one sequence without context.
    prefill=Curve(
        (0, 10.052),
        (128, 13.774),
        (256, 17.126),
        (512, 26.544),
        (1024, 46.242),
        (2048, 85.916),
        (4096, 169.604),
        (8192, 344.263),
        (16384, 690.282),
        (32768, 1535.851),
    ),
    # Prefills behind cached prefixes, less the same prefill without: (48.079 - 46.242) ms for 1,024
    # tokens behind 6,144; (27.356 - 26.544) for 512 behind 8,192; (53.087 - 46.242) for 1,024
    # behind 16,384; (116.084 - 85.916) for 2,048 behind 30,720.
    attention=Curve((6144, 2.920e-7), (8192, 1.936e-7), (16384, 4.080e-7), (30720, 4.795e-7)),
    contexts=_CONTEXTS,
    decode=(
        (1, (10.122, 10.331, 10.435, 10.635)),
        (8, (10.142, 10.379, 10.585, 12.053)),
        (16, (11.058, 11.393, 12.764, 14.532)),
        (32, (11.048, 12.664, 14.434, 17.858)),
        (64, (12.256, 15.413, 18.870, 25.716)),
        (128, (14.565, 19.697, 26.438, 40.070)),
        (256, (20.017, 30.051, 44.408, 71.645)),
    ),
    kv_tokens=1_350_000,
    batch_tokens=8192,
    max_sequences=1024,
)

_A100 = Profile(
    name="llama-3.1-70b/8xa100",
    prefill=Curve(
        (0, 17.043),
        (128, 25.606),
        (256, 36.781),
        (512, 77.298),
        (1024, 126.242),
        (2048, 225.637),
        (4096, 424.000),
        (8192, 831.750),
        (16384, 1787.723),
        (32768, 4057.025),
    ),
    # As above: (137.907 - 126.242), (84.797 - 77.298), (154.843 - 126.242), (339.062 - 225.637) ms.
    attention=Curve((6144, 1.854e-6), (8192, 1.788e-6), (16384, 1.705e-6), (30720, 1.803e-6)),
    contexts=_CONTEXTS,
    decode=(
        (1, (17.181, 17.595, 18.097, 19.273)),
        (8, (17.479, 18.265, 19.307, 21.149)),
        (16, (19.517, 20.794, 22.643, 26.135)),
        (32, (21.324, 24.076, 27.600, 34.617)),
        (64, (22.241, 27.736, 33.897, 48.200)),
        (128, (28.810, 39.278, 52.835, 81.129)),
        (256, (43.995, 67.307, 93.218, 148.427)),
    ),
    kv_tokens=415_000,
    batch_tokens=2048,
    max_sequences=256,
)

PROFILES = MappingProxyType({profile.name: profile for profile in (_H100, _A100)})
"""Profiles by name."""

DEFAULT_PROFILE = _H100.name
