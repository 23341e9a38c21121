"""The YAML that is shipped, on the real Envoy: it loads, routes, and lets no client choose."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import yaml

from extproc.lab.envoy_config import ListenerConfig
from extproc.lab.processes import Part, PortPool
from extproc.lab.stack import LocalStack, ReplicaOptions, envoy_binary

FOLDER = Path(__file__).parents[2] / "envoy"
BODY = {"model": "m", "messages": [{"role": "user", "content": "how deep is the lake? " * 40}]}


def standalone() -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((FOLDER / "standalone.yaml").read_text())
    return config


def dropped_in() -> dict[str, Any]:
    """A plain proxy of three backends, with the pieces of drop-in.yaml put where they say."""
    pieces = yaml.safe_load((FOLDER / "drop-in.yaml").read_text())
    config = standalone()
    listener = config["static_resources"]["listeners"][0]
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    del manager["early_header_mutation_extensions"]
    manager |= pieces["http_connection_manager"]
    manager["http_filters"][:2] = [pieces["buffer_filter"], pieces["http_filter"]]
    route = {"match": {"prefix": "/"}, **pieces["route"]}
    route["route"]["cluster"] = "replicas"
    manager["route_config"]["virtual_hosts"][0]["routes"] = [route]
    own = config["static_resources"]["clusters"][1]
    plain = {key: own[key] for key in ("name", "type", "connect_timeout", "load_assignment")}
    clusters = [pieces["router_cluster"], plain | pieces["replica_cluster"]]
    config["static_resources"]["clusters"] = clusters
    return config


SHIPPED = {"standalone.yaml": standalone, "drop-in.yaml": dropped_in}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack() -> AsyncIterator[LocalStack]:
    options = ReplicaOptions(speed=float("inf"), per_process=3)
    listener = ListenerConfig("unused")
    async with LocalStack([listener], store="memory://", replica_options=options) as started:
        yield started


@pytest.fixture(params=SHIPPED)
def shipped(request: pytest.FixtureRequest, stack: LocalStack, tmp_path: Path) -> tuple[Part, str]:
    """An Envoy with the shipped YAML, not started."""
    return envoy_of(SHIPPED[request.param](), stack, tmp_path)


def envoy_of(config: dict[str, Any], stack: LocalStack, tmp_path: Path) -> tuple[Part, str]:
    """An Envoy with a configuration, its ports exchanged for those of the stack, and its URL."""
    text = yaml.safe_dump(config, width=1000)
    ports = PortPool()
    ports_of = {"9901": str(ports.take()), "8080": str(ports.take())}
    ports_of["9002"] = stack.routers[0].address.split(":")[1]
    for number, replica in enumerate(stack.replicas, start=8001):
        ports_of[str(number)] = replica.split(":")[1]
    for old, new in ports_of.items():
        text = text.replace(f"port_value: {old}", f"port_value: {new}")
        text = text.replace(f"127.0.0.1:{old}", f"127.0.0.1:{new}")
    path = tmp_path / "envoy.yaml"
    path.write_text(text)
    argv = [
        str(envoy_binary()),
        "--config-path",
        str(path),
        "--concurrency",
        "1",
        "--disable-hot-restart",
    ]

    async def ready() -> bool:
        try:
            url = f"http://127.0.0.1:{ports_of['9901']}/ready"
            async with aiohttp.ClientSession() as session, session.get(url) as reply:
                return reply.status == 200
        except aiohttp.ClientError:
            return False

    envoy = Part("envoy", [*argv, "--log-level", "warning"], log=tmp_path / "log", ready=ready)
    return envoy, f"http://127.0.0.1:{ports_of['8080']}/v1/chat/completions"


async def post(url: str, headers: dict[str, str]) -> str:
    """Send one request and return the address of the replica that served."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, json=BODY, headers=headers) as reply,
    ):
        assert reply.status == 200, await reply.text()
        return reply.headers["x-replica"]


@pytest.mark.asyncio(loop_scope="module")
async def test_routes_and_lets_no_client_choose(
    shipped: tuple[Part, str], stack: LocalStack
) -> None:
    envoy, url = shipped
    await envoy.start()
    try:
        first = await post(url, {})
        for address in stack.replicas:  # one prompt, one replica, whatever a client asks for
            assert await post(url, {"x-gateway-destination-endpoint": address}) == first
        await stack.routers[0].kill()
        others = set()
        for _ in range(12):
            others.add(await post(url, {"x-gateway-destination-endpoint": first}))
        assert len(others) > 1, "without a router the choice is Envoy's, not the client's"
    finally:
        await envoy.stop()
        if not stack.routers[0].alive:
            await stack.routers[0].start()
