"""Routers that die, freeze, restart and start badly."""

import asyncio
import json
import os
import signal
import subprocess
import sys

import pytest

from extproc.lab.stack import ROUTER_COMMAND
from tests.faults.conftest import Drills
from tests.faults.stack import FaultStack, replicas

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]


def pid_of_worker(stack: FaultStack, number: int) -> int:
    """The process that fills a place, as the router's log in JSON tells."""
    lines = map(json.loads, stack.routers[0].log.read_text().splitlines())
    found = [
        line["pid"]
        for line in lines
        if (line["event"], line.get("worker")) == ("worker started", number)
    ]
    return int(found[-1])


async def test_one_router_is_killed(stack: FaultStack, drill: Drills) -> None:
    async with drill(stack, "one of three routers: `kill -9`, later started") as it:
        await stack.routers[0].kill()
        await it.passes()
        await stack.routers[0].start()
        await it.mended()
        await it.whole(stack.shared)


async def test_all_routers_are_killed(stack: FaultStack, drill: Drills) -> None:
    async with drill(stack, "all routers: `kill -9`, later started") as it:
        for router in stack.routers:
            await router.kill()
        await it.passes()
        await asyncio.gather(*(router.start() for router in stack.routers))
        await it.mended()
        await it.whole(stack.shared)


async def test_a_router_freezes(stack: FaultStack, drill: Drills) -> None:
    async with drill(stack, "one of three routers: SIGSTOP, later SIGCONT") as it:
        stack.routers[1].pause()
        await it.passes()
        stack.routers[1].resume()
        await it.mended()
        await it.whole(stack.shared)


async def test_routers_are_restarted_one_by_one(stack: FaultStack, drill: Drills) -> None:
    async with drill(stack, "three routers: SIGTERM and started, one after the other") as it:
        for router in stack.routers:
            await router.restart()
            await it.passes()
        await it.mended()
        await it.whole(stack.shared)


async def test_a_worker_crashes(drill: Drills) -> None:
    async with (
        replicas() as moody,
        FaultStack(moody, routers=1, workers=2, router_arguments=["--log-format", "json"]) as stack,
        drill(stack, "one of two workers of a router: `kill -9`") as it,
    ):
        await it.until(stack.shared)
        os.kill(pid_of_worker(stack, 1), signal.SIGKILL)
        await it.mended()
        await it.whole(stack.shared)


async def test_routers_start_without_a_store(drill: Drills) -> None:
    async with (
        replicas() as moody,
        FaultStack(moody, routers=2) as stack,
        drill(stack, "two routers are started while no store answers") as it,
    ):
        await stack.store.kill()
        for router in stack.routers:
            await router.restart()
        await it.passes()
        assert await stack.alone()
        await stack.store.start()
        await it.mended()
        await it.whole(stack.shared)


async def test_a_taken_port_is_one_clear_line(stack: FaultStack) -> None:
    address = stack.routers[0].address
    command = [sys.executable, *ROUTER_COMMAND, "--listen", address, "--admin", ""]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert address in line
    assert "in use" in line
