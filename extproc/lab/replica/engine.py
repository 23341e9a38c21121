"""The scheduler of a model server without clock or network: iteration-level batching.

It follows vLLM's scheduler: each step shares a budget of tokens between running sequences (one
token each when they decode, a chunk when they prefill) and then waiting ones in order of arrival.
Blocks are findable from the moment they are scheduled, so equal prompts that start in one step are
computed once. When the cache is full the sequence that started last gives its blocks back and
starts over.

Two drivers use it: the HTTP replica takes one ``step`` after the other; the simulator brackets runs
of iterations in which nothing changes with ``begin``, ``interrupt`` and ``finish``.
"""

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass

from extproc.lab.replica.cache import BlockCache
from extproc.lab.replica.decoding import Decoding, Job
from extproc.lab.replica.latency import Chunk, DecodeRun, Profile
from extproc.lab.replica.request import Counters, Output, Request, Step

_FOREVER = 1 << 30


@dataclass(slots=True)
class _Work:
    """What is being computed: a batch with prefills once, or decodes for some iterations."""

    started: float
    prefills: list[tuple[Job, int]]
    run: DecodeRun
    iterations: int = 1

    def duration(self, iterations: int) -> float:
        return iterations * self.run.first_s + self.run.growth_s * iterations * (iterations - 1) / 2


class Engine:
    """Requests in, tokens out.

    Args:
        profile: How long a step takes.
        cache: The prefix cache.
        max_sequences: Sequences that may run at once; 0 takes the profile's.
        batch_tokens: Tokens that one step may compute; 0 takes the profile's.

    Attributes:
        counters: What it did.
        prefill_s: Seconds that requests took from their first scheduling to their first token.

    Raises:
        ValueError: If a step may compute fewer tokens than sequences may run.
    """

    def __init__(
        self,
        profile: Profile,
        cache: BlockCache,
        *,
        max_sequences: int = 0,
        batch_tokens: int = 0,
    ) -> None:
        self.profile = profile
        self.cache = cache
        self.counters = Counters()
        self.prefill_s = 0.0
        self._batch_tokens = batch_tokens or profile.batch_tokens
        self._max_sequences = max_sequences or min(profile.max_sequences, self._batch_tokens)
        if self._batch_tokens < self._max_sequences:
            raise ValueError(
                f"{self._max_sequences} sequences cannot decode in steps of "
                f"{self._batch_tokens} tokens"
            )
        self._waiting: deque[Job] = deque()
        self._running: dict[str, Job] = {}  # in order of their start
        self._partial: Job | None = None  # in the midst of its prefill; it started last
        self._decoding = Decoding(cache.block_tokens)
        self._work: _Work | None = None
        self._now = 0.0  # when the current work began, then when it ended

    @property
    def running(self) -> int:
        """Sequences in the batch."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Sequences that are not in the batch yet, or no longer."""
        return len(self._waiting)

    @property
    def busy(self) -> bool:
        """Whether something was begun that is not finished."""
        return self._work is not None

    @property
    def prefilled(self) -> tuple[str, int] | None:
        """Who is in the midst of its prefill: its id and the tokens it has; None for nobody."""
        partial = self._partial
        return (partial.request.id, partial.computed) if partial is not None else None

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
        self._waiting.append(Job(request, target=request.prompt_tokens))

    def abort(self, request_id: str) -> bool:
        """Forget an open request; what it computed stays cached. False if it is not open.

        Not between ``begin`` and ``finish``.
        """
        sequence = self._running.get(request_id)
        if sequence is not None:
            self._stop(sequence)
            return True
        for waiting in self._waiting:
            if waiting.request.id == request_id:
                self._waiting.remove(waiting)
                return True
        return False

    def step(self, now: float) -> Step | None:
        """Compute one batch.

        Args:
            now: The caller's time in seconds, when the step starts.

        Returns:
            None if there is nothing to do.
        """
        end = self.begin(now, most=1)
        if end is None:
            return None
        before = [(each, self._decoding.generated(each)) for each in self._running.values()]
        self.finish()
        outputs = [
            Output(each.request.id, now_has - 1, now_has == each.request.output_tokens, each.cached)
            for each, had in before
            if (now_has := self._decoding.generated(each)) > had
        ]
        return Step(started=now, duration_s=end - now, outputs=outputs)

    def begin(self, now: float, *, most: int = _FOREVER) -> float | None:
        """Begin to compute: one batch, or as many as nothing but decoding changes.

        Args:
            now: The caller's time in seconds.
            most: Iterations at most.

        Returns:
            When it will be done; None if there is nothing to do.
        """
        preemptions = self.counters.preemptions
        self._now = now
        prefills = self._schedule()
        if self.counters.preemptions > preemptions:
            most = 1  # nobody was admitted; in the next iteration somebody may be
        count, context = self._decoding.count, self._decoding.context
        if prefills:
            chunks = [Chunk(tokens, each.computed) for each, tokens in prefills]
            duration = self.profile.step_s(chunks, count, context)
            self._work = _Work(now, prefills, DecodeRun(duration, 0.0, 1))
        elif count:
            run = self.profile.decode_run(count, context)
            iterations = min(most, run.iterations, self._decoding.until_end())
            if iterations > 1:
                # The first iteration's blocks are taken.
                spare = self.cache.spare_blocks + self._decoding.blocks(1)
                iterations = max(1, self._decoding.fitting(spare, iterations))
            self._work = _Work(now, prefills, run, iterations)
        else:
            return None
        return now + self._work.duration(self._work.iterations)

    def interrupt(self, at: float) -> float:
        """Let what was begun end with the first iteration that is done at ``at`` or later.

        Returns:
            When that is.
        """
        work = self._work
        assert work is not None
        if work.iterations > 1:
            steps = range(1, work.iterations)
            work.iterations = 1 + bisect_left(steps, at - work.started, key=work.duration)
        return work.started + work.duration(work.iterations)

    def finish(self) -> list[Output]:
        """End what was begun.

        Returns:
            The first and the last token of every sequence that got one.
        """
        work = self._work
        assert work is not None
        self._work = None
        self._now = work.started + work.duration(work.iterations)
        more = self._decoding.blocks(work.iterations) - self._decoding.blocks(1)
        self.cache.take(more)
        self.counters.generation_tokens += self._decoding.count * work.iterations
        outputs = []
        for sequence in self._decoding.advance(work.iterations):
            self._stop(sequence)
            outputs.append(self._last(sequence))
        for sequence, tokens in work.prefills:
            sequence.computed += tokens
            if sequence.computed == sequence.target:
                outputs += self._sample(sequence)
        return outputs

    def _schedule(self) -> list[tuple[Job, int]]:
        """Take the blocks of the next iteration, and say who prefills how many tokens in it."""
        preempted = False
        while self._decoding.blocks(1) > self.cache.spare_blocks:
            self._preempt()
            preempted = True
        self.cache.take(self._decoding.blocks(1))
        budget = self._batch_tokens - self._decoding.count
        batch: list[tuple[Job, int]] = []
        partial = self._partial
        if partial is not None:
            tokens = min(partial.target - partial.computed, budget)
            new = self._blocks(partial.computed + tokens) - self._blocks(partial.computed)
            if new > self.cache.spare_blocks:
                self._preempt()
                preempted = True
            else:
                self._chunk(partial, tokens, new)
                batch.append((partial, tokens))
                budget -= tokens
        if not preempted:
            self._admit(batch, budget)
        return batch

    def _admit(self, batch: list[tuple[Job, int]], budget: int) -> None:
        cache = self.cache
        while self._waiting and budget > 0 and len(self._running) < self._max_sequences:
            sequence = self._waiting[0]
            # The last token is always computed: its logits give the next one.
            reusable = (sequence.target - 1) // cache.block_tokens
            chain = sequence.request.hashes[:reusable]
            found = cache.lookup(chain)
            hit = found * cache.block_tokens
            tokens = min(sequence.target - hit, budget)
            new = self._blocks(hit + tokens) - found
            if found + new > cache.spare_blocks and not cache.fits(chain[:found], new):
                return
            sequence.named = list(chain[:found])
            cache.hold(sequence.named)
            sequence.covered = found
            sequence.computed = hit
            if sequence.cached < 0:
                sequence.cached = hit
                sequence.scheduled = self._now
                self.counters.prefix_queries += sequence.request.prompt_tokens
                self.counters.prefix_hits += hit
            self._running[sequence.request.id] = self._waiting.popleft()
            self._chunk(sequence, tokens, new)
            batch.append((sequence, tokens))
            budget -= tokens

    def _chunk(self, sequence: Job, tokens: int, new: int) -> None:
        self.cache.take(new)
        self._name(sequence, sequence.computed + tokens)
        done = sequence.computed + tokens == sequence.target
        self._partial = None if done else sequence

    def _name(self, sequence: Job, tokens: int) -> None:
        """Make the blocks of the first ``tokens`` findable."""
        hashes = sequence.request.hashes
        full = min(tokens // self.cache.block_tokens, len(hashes))
        if full > sequence.covered:
            sequence.named += self.cache.name(hashes[sequence.covered : full])
            sequence.covered = full

    def _sample(self, sequence: Job) -> list[Output]:
        """The token that a whole prefill gives, if it is the first or the last one."""
        sequence.generated += 1
        self.counters.generation_tokens += 1
        first = sequence.generated == 1
        if first:
            counters, prompt = self.counters, sequence.request.prompt_tokens
            counters.prompt_tokens += prompt
            counters.prefills += 1
            self.prefill_s += self._now - sequence.scheduled
            counters.computed_tokens += prompt - sequence.cached
        if sequence.generated == sequence.request.output_tokens:
            self._stop(sequence)
            return [self._last(sequence)]
        self._decoding.add(sequence)
        return [Output(sequence.request.id, 0, False, sequence.cached)] if first else []

    @staticmethod
    def _last(sequence: Job) -> Output:
        return Output(sequence.request.id, sequence.generated - 1, True, sequence.cached)

    def _preempt(self) -> None:
        sequence = next(reversed(self._running.values()))
        self._stop(sequence)
        sequence.target = sequence.request.prompt_tokens + sequence.generated
        sequence.computed = 0
        self.counters.preemptions += 1
        self._waiting.appendleft(sequence)

    def _stop(self, sequence: Job) -> None:
        """Take a sequence out of the batch; its blocks are free, with their content."""
        if sequence.since >= 0:
            self._decoding.remove(sequence)
        if sequence is self._partial:
            self._partial = None
        del self._running[sequence.request.id]
        self._name(sequence, sequence.computed)
        nameless = self._blocks(sequence.computed) - len(sequence.named)
        self.cache.release(sequence.named, nameless)
        sequence.named = []
        sequence.covered = 0

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.cache.block_tokens)
