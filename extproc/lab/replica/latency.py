"""How long one step of a model server takes.

The profiles are least-squares fits, within about 5 %, to estimates of NVIDIA AIConfigurator 0.12
(from measured vLLM kernels) for Llama-3.1-70B in bf16 with tensor parallelism 8.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple


class Chunk(NamedTuple):
    """Prompt tokens that one step prefills.

    Attributes:
        new: Tokens to prefill.
        context: Tokens before them, cached or prefilled earlier.
    """

    new: int
    context: int


@dataclass(frozen=True, slots=True)
class Profile:
    """Step times of one model on one machine; all coefficients in milliseconds.

    Attributes:
        name: ``model/machine``.
        prefill_base: A step that prefills, before any token.
        prefill_linear: Per prefilled token.
        prefill_square: Attention: per squared token; with context ``c``, ``n`` new tokens cost the
            difference ``(c + n)^2 - c^2``.
        decode_base: A step that decodes, before any sequence.
        decode_sequence: Per decoding sequence.
        decode_context: Per token in the context of a decoding sequence.
        kv_tokens: Tokens whose keys and values fit beside the weights.
    """

    name: str
    prefill_base: float
    prefill_linear: float
    prefill_square: float
    decode_base: float
    decode_sequence: float
    decode_context: float
    kv_tokens: int

    def step_s(self, prefills: Iterable[Chunk], decode_contexts: Iterable[int]) -> float:
        """Seconds that one step takes.

        Weights are read once per step, so a step that both prefills and decodes pays the larger
        base only.

        Args:
            prefills: What the step prefills.
            decode_contexts: The context in tokens of every sequence that decodes one token.
        """
        base = work = 0.0
        for new, context in prefills:
            base = max(base, self.prefill_base)
            square = (context + new) ** 2 - context**2
            work += self.prefill_linear * new + self.prefill_square * square
        for context in decode_contexts:
            base = max(base, self.decode_base)
            work += self.decode_sequence + self.decode_context * context
        return (base + work) / 1000


PROFILES = MappingProxyType(
    {
        profile.name: profile
        for profile in (
            Profile(
                name="llama-3.1-70b/8xh100",
                prefill_base=6,
                prefill_linear=0.0405,
                prefill_square=1.9e-7,
                decode_base=10,
                decode_sequence=0.033,
                decode_context=1.2e-5,
                kv_tokens=1_350_000,
            ),
            Profile(
                name="llama-3.1-70b/8xa100",
                prefill_base=30,
                prefill_linear=0.094,
                prefill_square=8.7e-7,
                decode_base=17,
                decode_sequence=0.075,
                decode_context=2.65e-5,
                kv_tokens=415_000,
            ),
        )
    }
)
"""Profiles by name."""

DEFAULT_PROFILE = "llama-3.1-70b/8xh100"
