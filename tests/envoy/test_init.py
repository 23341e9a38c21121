"""From a plain proxy to prefix-aware routing by ``prefix-extproc init`` alone."""

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import aiohttp
import pytest
import pytest_asyncio
from typer.testing import CliRunner

from extproc import cli
from extproc.check.checking import check
from extproc.lab.envoy_config import ListenerConfig
from extproc.lab.processes import Part, PortPool
from extproc.lab.stack import LocalStack, ReplicaOptions, envoy_binary
from tests.envoy.conversation import begin, go_on

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLAIN = Path(__file__).parents[1] / "check" / "plain.yaml"
CONVERSATIONS = 12


class Proxy(NamedTuple):
    """URLs of an Envoy."""

    main: str
    admin: str


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack() -> AsyncIterator[LocalStack]:
    options = ReplicaOptions(speed=float("inf"), per_process=3)
    listener = ListenerConfig("unused")
    async with LocalStack([listener], store="memory://", replica_options=options) as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def proxy(stack: LocalStack, tmp_path: Path) -> AsyncIterator[Proxy]:
    """An Envoy of a plain configuration, after ``init``."""
    ports = PortPool()
    admin, port = ports.take(), ports.take()
    numbers = {"9901": admin, "8080": port, "8000": ports.take()}
    for number, replica in enumerate(stack.replicas, start=8001):
        numbers[str(number)] = int(replica.split(":")[1])
    text = PLAIN.read_text()
    for old, new in numbers.items():
        text = text.replace(f"port_value: {old}", f"port_value: {new}")
    path = tmp_path / "envoy.yaml"
    path.write_text(text)
    arguments = ["init", str(path), "--cluster", "models", "--router", stack.routers[0].address]
    result = CliRunner().invoke(cli.app, [*arguments, "--write"])
    assert result.exit_code == 0, result.output

    async def ready() -> bool:
        try:
            answer = f"http://127.0.0.1:{admin}/ready"
            async with aiohttp.ClientSession() as session, session.get(answer) as reply:
                return reply.status == 200
        except aiohttp.ClientError:
            return False

    flags = ["--concurrency", "1", "--disable-hot-restart", "--log-level", "warning"]
    argv = [str(envoy_binary()), "--config-path", str(path), *flags]
    envoy = Part("envoy", argv, log=tmp_path / "envoy.log", ready=ready)
    await envoy.start()
    try:
        yield Proxy(f"http://127.0.0.1:{port}", f"http://127.0.0.1:{admin}")
    finally:
        await envoy.stop()


async def test_second_turns_find_the_replica_of_the_first(proxy: Proxy) -> None:
    replicas = set()
    async with aiohttp.ClientSession() as session:
        for number in range(CONVERSATIONS):
            first = await begin(session, proxy.main, random.Random(number))
            assert await go_on(session, proxy.main, first) == first.replica
            replicas.add(first.replica)

    assert len(replicas) == 3, "Envoy's own policy still spreads what nobody has seen"


async def test_check_reads_what_a_running_envoy_has(proxy: Proxy) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{proxy.admin}/config_dump") as reply,
    ):
        dump = await reply.text()

    assert check({"dump.json": dump}).findings == []
    broken = dump.replace('"failure_mode_allow": true', '"failure_mode_allow": false')
    assert {each.rule for each in check({"dump.json": broken}).findings} == {"fails-closed"}
