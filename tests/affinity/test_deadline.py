"""The deadline: it ends a wait, but not for our own slowness."""

import asyncio
import time

import pytest

from extproc.affinity.deadline import Deadline


async def test_a_wait_ends() -> None:
    with pytest.raises(TimeoutError):
        async with Deadline(0.01):
            await asyncio.sleep(60)


async def test_a_cancellation_stays_one() -> None:
    async def wait() -> None:
        async with Deadline(60):
            await asyncio.sleep(60)

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_other_errors_pass() -> None:
    with pytest.raises(KeyError):
        async with Deadline(60):
            raise KeyError("x")


async def test_a_busy_loop_does_not_use_it_up() -> None:
    """The answer is there in time, but the loop is busy for twice the deadline before it looks."""
    loop = asyncio.get_running_loop()
    answer = loop.create_future()

    async def ask() -> str:
        async with Deadline(0.02):
            first: str = await answer
            await asyncio.sleep(0)
            return first

    task = asyncio.create_task(ask())
    await asyncio.sleep(0)
    loop.call_soon(answer.set_result, "here")
    time.sleep(0.04)  # noqa: ASYNC251 - the loop is to stand still
    assert await task == "here"
