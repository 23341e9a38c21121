"""The scheduler of a model server without clock or network: iteration-level batching.

It follows vLLM's scheduler: each step shares a budget of tokens between running sequences (one
token each when they decode, a chunk when they prefill) and then waiting ones in order of arrival;
when the cache is full the sequence that started last gives its blocks back and starts over.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from extproc.lab.replica.cache import BlockCache
from extproc.lab.replica.latency import Chunk, Profile


@dataclass(frozen=True, slots=True)
class Request:
    """One sequence to generate.

    Attributes:
        id: Unique among the engine's open requests.
        prompt_tokens: At least 1.
        output_tokens: Tokens to generate, at least 1.
        hashes: Chained hashes of the full blocks of prompt and output together.
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
    """What the engine did since its start, as vLLM counts it.

    Attributes:
        prefix_queries: Prompt tokens looked up in the cache.
        prefix_hits: Prompt tokens found there.
        prompt_tokens: Prompt tokens of requests that got their first token.
        generation_tokens: Generated tokens.
        preemptions: Sequences that had to start over.
    """

    prefix_queries: int = 0
    prefix_hits: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    preemptions: int = 0


@dataclass(slots=True)
class _Sequence:
    request: Request
    target: int  # tokens to have computed before the next token can be sampled
    computed: int = 0
    generated: int = 0
    cached: int = -1
    blocks: list[int] = field(default_factory=list)
    committed: int = 0


class Engine:
    """Requests in, steps out.

    Args:
        profile: How long a step takes.
        cache: The prefix cache.
        max_sequences: Sequences that may run at once.
        batch_tokens: Tokens that one step may compute.
    """

    def __init__(
        self,
        profile: Profile,
        cache: BlockCache,
        *,
        max_sequences: int = 256,
        batch_tokens: int = 8192,
    ) -> None:
        self.profile = profile
        self.cache = cache
        self.counters = Counters()
        self._max_sequences = max_sequences
        self._batch_tokens = batch_tokens
        self._waiting: deque[_Sequence] = deque()
        self._running: list[_Sequence] = []

    @property
    def running(self) -> int:
        """Sequences in the batch."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Sequences that are not in the batch yet, or no longer."""
        return len(self._waiting)

    @property
    def max_request_tokens(self) -> int:
        """The most tokens, prompt and output together, that a request may have."""
        return self.cache.capacity_blocks * self.cache.block_tokens

    def add(self, request: Request) -> None:
        """Queue a request.

        Raises:
            ValueError: If it could never run, for its size.
        """
        if request.prompt_tokens < 1 or request.output_tokens < 1:
            raise ValueError("a request needs at least one prompt token and one output token")
        total = request.prompt_tokens + request.output_tokens
        if total > self.max_request_tokens:
            raise ValueError(
                f"{total} tokens do not fit into a cache of {self.max_request_tokens} tokens"
            )
        self._waiting.append(_Sequence(request, target=request.prompt_tokens))

    def abort(self, request_id: str) -> bool:
        """Forget an open request; what it computed stays cached. False if it is not open."""
        for group in (self._running, self._waiting):
            for sequence in group:
                if sequence.request.id == request_id:
                    self._free(sequence)
                    group.remove(sequence)
                    return True
        return False

    def step(self, now: float) -> Step | None:
        """Compute one batch.

        Args:
            now: The caller's time in seconds, when the step starts.

        Returns:
            None if there is nothing to do.
        """
        batch = self._schedule()
        if not batch:
            return None
        prefills = []
        decodes = []
        for sequence, tokens in batch:
            if sequence.generated and tokens == 1:
                decodes.append(sequence.computed)
            else:
                prefills.append(Chunk(new=tokens, context=sequence.computed))
        duration = self.profile.step_s(prefills, decodes)
        outputs = []
        for sequence, tokens in batch:
            output = self._advance(sequence, tokens)
            if output is not None:
                outputs.append(output)
        return Step(started=now, duration_s=duration, outputs=outputs)

    def _schedule(self) -> list[tuple[_Sequence, int]]:
        budget = self._batch_tokens
        batch: list[tuple[_Sequence, int]] = []
        preempted = False
        position = 0
        while position < len(self._running) and budget > 0:
            sequence = self._running[position]
            tokens = min(sequence.target - sequence.computed, budget)
            while not self._grow(sequence, tokens):
                preempted = True
                victim = self._running.pop()
                self._preempt(victim)
                if victim is sequence:
                    break
            else:
                batch.append((sequence, tokens))
                budget -= tokens
                position += 1
        if not preempted:
            self._admit(batch, budget)
        return batch

    def _admit(self, batch: list[tuple[_Sequence, int]], budget: int) -> None:
        while self._waiting and budget > 0 and len(self._running) < self._max_sequences:
            sequence = self._waiting[0]
            # The last token is always computed: its logits give the next one.
            reusable = (sequence.target - 1) // self.cache.block_tokens
            blocks = self.cache.lookup(sequence.request.hashes[:reusable])
            hit = len(blocks) * self.cache.block_tokens
            tokens = min(sequence.target - hit, budget)
            if not self.cache.can_take(blocks, self._blocks(hit + tokens) - len(blocks)):
                return
            self.cache.hold(blocks)
            sequence.blocks = blocks
            sequence.committed = len(blocks)
            sequence.computed = hit
            self._grow(sequence, tokens)
            if sequence.cached < 0:
                sequence.cached = hit
                self.counters.prefix_queries += sequence.request.prompt_tokens
                self.counters.prefix_hits += hit
            self._running.append(self._waiting.popleft())
            batch.append((sequence, tokens))
            budget -= tokens

    def _grow(self, sequence: _Sequence, tokens: int) -> bool:
        missing = self._blocks(sequence.computed + tokens) - len(sequence.blocks)
        blocks = self.cache.allocate(max(missing, 0))
        if blocks is None:
            return False
        sequence.blocks.extend(blocks)
        return True

    def _advance(self, sequence: _Sequence, tokens: int) -> Output | None:
        sequence.computed += tokens
        full = min(sequence.computed // self.cache.block_tokens, len(sequence.request.hashes))
        for index in range(sequence.committed, full):
            self.cache.commit(sequence.blocks[index], sequence.request.hashes[index])
        sequence.committed = max(sequence.committed, full)
        if sequence.computed < sequence.target:
            return None
        index = sequence.generated
        sequence.generated += 1
        sequence.target += 1
        self.counters.generation_tokens += 1
        if index == 0:
            self.counters.prompt_tokens += sequence.request.prompt_tokens
        finished = sequence.generated == sequence.request.output_tokens
        if finished:
            self._running.remove(sequence)
            self._free(sequence)
        return Output(sequence.request.id, index, finished, sequence.cached)

    def _preempt(self, sequence: _Sequence) -> None:
        self._free(sequence)
        sequence.computed = 0
        self.counters.preemptions += 1
        self._waiting.appendleft(sequence)

    def _free(self, sequence: _Sequence) -> None:
        self.cache.release(sequence.blocks)
        sequence.blocks = []
        sequence.committed = 0

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.cache.block_tokens)
