"""Runs an engine in real time: its steps take as long as the latency model says."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import count

from extproc.lab.replica.engine import Engine
from extproc.lab.replica.request import Output, Request


class EngineDriver:
    """Steps an engine while it has work, and hands each token to who waits for it.

    Args:
        engine: The engine.
        speed: How many times faster than the latency model; ``inf`` never waits.
    """

    def __init__(self, engine: Engine, *, speed: float = 1.0) -> None:
        if speed <= 0:
            raise ValueError("speed must be above 0")
        self.engine = engine
        self._speed = speed
        self._ids = count()
        self._waiters: dict[str, tuple[int, asyncio.Queue[tuple[int, Output]]]] = {}
        self._work = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to step; call it with a running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Stop stepping. Whoever still waits for tokens waits forever: cancel them first."""
        if self._task is None:
            return
        task, self._task = self._task, None
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    @asynccontextmanager
    async def generate(
        self, sequences: Sequence[tuple[int, int, Sequence[int]]]
    ) -> AsyncIterator[AsyncIterator[tuple[int, Output]]]:
        """Queue sequences and give their tokens as they come; leaving early aborts them.

        Args:
            sequences: Prompt tokens, output tokens and block hashes of each, as in ``Request``.

        Yields:
            An iterator over pairs of a sequence's number and its next token.

        Raises:
            ValueError: If a sequence can never run, for its size.
        """
        queue: asyncio.Queue[tuple[int, Output]] = asyncio.Queue()
        ids: list[str] = []
        try:
            for number, (prompt_tokens, output_tokens, hashes) in enumerate(sequences):
                request_id = str(next(self._ids))
                self.engine.add(Request(request_id, prompt_tokens, output_tokens, hashes))
                self._waiters[request_id] = (number, queue)
                ids.append(request_id)
            self._work.set()
            yield self._tokens(queue, len(ids))
        finally:
            for request_id in ids:
                del self._waiters[request_id]
                self.engine.abort(request_id)

    @staticmethod
    async def _tokens(
        queue: asyncio.Queue[tuple[int, Output]], unfinished: int
    ) -> AsyncIterator[tuple[int, Output]]:
        while unfinished:
            number, output = await queue.get()
            unfinished -= output.finished
            yield number, output

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        clock = loop.time()
        while True:
            step = self.engine.step(clock)
            if step is None:
                self._work.clear()
                await self._work.wait()
                clock = loop.time()
                continue
            # Steps follow each other on the model's clock: a late wake-up is not added to the next.
            clock += step.duration_s / self._speed
            await asyncio.sleep(max(0.0, clock - loop.time()))
            for output in step.outputs:
                if waiter := self._waiters.get(output.id):
                    number, queue = waiter
                    queue.put_nowait((number, output))
