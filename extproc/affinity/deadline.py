"""A deadline for answers from outside that our own busy moments do not use up."""

import asyncio
from types import TracebackType
from typing import Self

_SLICES = 4


class Deadline:
    """Like ``asyncio.timeout``, but time in which the event loop did not turn counts little.

    On a saturated loop an answer can lie in its buffer for longer than the whole deadline, and
    giving up on it only makes more work. So the time is counted in slices, each of which counts
    once, however late its timer is served: there are always some turns of the loop in which an
    answer that has come is seen. On a healthy loop the sum of the slices is the deadline.

    Args:
        seconds: The deadline.

    Raises:
        TimeoutError: On leaving, if time ran out.
    """

    __slots__ = ("_left", "_loop", "_slice", "_timeout", "_timer")

    def __init__(self, seconds: float) -> None:
        self._slice = seconds / _SLICES
        self._left = _SLICES

    async def __aenter__(self) -> Self:
        """Begin to count."""
        self._loop = asyncio.get_running_loop()
        self._timeout = asyncio.timeout(None)
        await self._timeout.__aenter__()
        self._timer = self._loop.call_later(self._slice, self._tick)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the count."""
        self._timer.cancel()
        await self._timeout.__aexit__(kind, error, trace)

    def _tick(self) -> None:
        self._left -= 1
        if self._left:
            self._timer = self._loop.call_later(self._slice, self._tick)
        else:
            self._timeout.reschedule(self._loop.time())
