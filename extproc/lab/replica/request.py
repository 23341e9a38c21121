"""What goes into an engine and what comes out."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Request:
    """One sequence to generate.

    Attributes:
        id: Unique among the engine's open requests.
        prompt_tokens: At least 1.
        output_tokens: Tokens to generate, at least 1.
        hashes: Chained hashes of the full blocks of prompt and output together; the output's may be
            missing.
    """

    id: str
    prompt_tokens: int
    output_tokens: int
    hashes: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Output:
    """One token of a sequence.

    Attributes:
        id: The request's id.
        index: 0 for the first token.
        finished: Whether it is the last one.
        cached_tokens: Prompt tokens that the cache held when the request was first scheduled.
    """

    id: str
    index: int
    finished: bool
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Step:
    """One iteration.

    Attributes:
        started: When it began, on the caller's clock in seconds.
        duration_s: How long it takes; the outputs exist from then on.
        outputs: At most one token per sequence.
    """

    started: float
    duration_s: float
    outputs: Sequence[Output]


@dataclass(slots=True)
class Counters:
    """What an engine did since its start, as vLLM counts it.

    Attributes:
        prefix_queries: Prompt tokens looked up in the cache.
        prefix_hits: Prompt tokens found there.
        prompt_tokens: Prompt tokens of requests that got their first token.
        generation_tokens: Generated tokens.
        prefills: Requests that got their first token.
        computed_tokens: Prompt tokens of them that were not found in the cache.
        preemptions: Sequences that had to start over.
    """

    prefix_queries: int = 0
    prefix_hits: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    prefills: int = 0
    computed_tokens: int = 0
    preemptions: int = 0
