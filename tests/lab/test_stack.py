import asyncio
import os
import signal
from pathlib import Path

import aiohttp
import pytest

from extproc.lab.envoy_config import ListenerConfig
from extproc.lab.processes import StackError
from extproc.lab.stack import LocalStack, ReplicaOptions
from extproc.processing.events import BodyMode

CHAT = {"messages": [{"role": "user", "content": "x" * 4000}], "max_tokens": 1}
FAST = ReplicaOptions(speed=float("inf"))


async def ask(session: aiohttp.ClientSession, url: str) -> str:
    """The replica that served."""
    async with session.post(url + "/v1/chat/completions", json=CHAT) as response:
        assert response.status == 200
        return response.headers["x-replica"]


async def test_the_whole_stack_routes_and_survives_its_parts() -> None:
    listeners = [
        ListenerConfig("both"),
        ListenerConfig("streamed", body_mode=BodyMode.STREAMED, retry=False, router=1),
    ]
    stack = LocalStack(listeners, routers=2, replicas=3, replica_options=FAST)
    async with stack, aiohttp.ClientSession() as session:
        favourite = await ask(session, stack.url("both"))
        assert favourite in stack.replicas
        for name in ("both", "streamed"):
            assert {await ask(session, stack.url(name)) for _ in range(5)} == {favourite}

        # A dead replica's requests go elsewhere, and it comes back under its address.
        process = stack.replica_processes[stack.replicas.index(favourite)]
        await process.kill()
        assert await ask(session, stack.url("both")) != favourite
        await process.start()
        async with session.get(f"http://{favourite}/health") as response:
            assert response.status == 200

        # Envoy goes on alone without its routers.
        for router in stack.routers:
            await router.kill()
        assert await ask(session, stack.url("both")) in stack.replicas
        assert stack.valkey is not None
        await stack.valkey.restart()
        for router in stack.routers:
            await router.start()
            async with session.get(router.admin + "/readyz") as response:
                assert response.status == 200
        stack.check()
    assert not any(part.alive for part in stack.parts)
    assert not await asyncio.to_thread(stack.folder.exists)


async def test_a_part_that_dies_is_told_at_the_end(tmp_path: Path) -> None:
    stack = LocalStack(
        [ListenerConfig("main", filter=False)],
        routers=0,
        replicas=2,
        replica_options=ReplicaOptions(speed=float("inf"), per_process=2),
        folder=tmp_path,
    )

    async def run() -> None:
        async with stack, aiohttp.ClientSession() as session:
            assert await ask(session, stack.url("main")) in stack.replicas
            os.kill(stack.replica_processes[0].pid, signal.SIGKILL)
            while stack.replica_processes[0].alive:
                await asyncio.sleep(0.01)

    with pytest.raises(StackError, match=r"(?s)replica-0 ended with status -9.*replica-0\.log"):
        await run()
    assert not any(part.alive for part in stack.parts)
    assert (tmp_path / "envoy.log").exists()


async def test_a_part_that_does_not_start_stops_all(tmp_path: Path) -> None:
    stack = LocalStack(
        [ListenerConfig("main")],
        routers=0,
        replicas=1,
        replica_options=ReplicaOptions(profile="no-such-gpu"),
        folder=tmp_path,
    )
    with pytest.raises(StackError, match=r"(?s)replica-0 ended with status 2.*no-such-gpu"):
        async with stack:
            pass
    assert not any(part.alive for part in stack.parts)


async def test_logs_follow_an_exception(tmp_path: Path) -> None:
    stack = LocalStack(
        [ListenerConfig("main", filter=False)],
        routers=0,
        replicas=1,
        replica_options=FAST,
        folder=tmp_path,
    )
    with pytest.raises(AssertionError) as caught:
        async with stack:
            raise AssertionError
    assert "end of" in caught.value.__notes__[0]
    assert "replica-0.log" in caught.value.__notes__[0]
