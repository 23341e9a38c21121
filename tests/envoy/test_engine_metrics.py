"""What engines tell, on the real Envoy: a replica is killed under load and comes back empty."""

import asyncio
import json
import random
from typing import Any

import aiohttp
import pytest

from extproc.lab.envoy_config import ListenerConfig
from extproc.lab.stack import LocalStack, ReplicaOptions
from tests.envoy.books import until
from tests.envoy.conftest import get_json

pytestmark = pytest.mark.asyncio(loop_scope="function")

POOL = "told"
LIMIT_S = 60.0
TOPICS = 12
TOPIC_BYTES = 3850
"""Twice as many characters end just behind a checkpoint, so that rounding down costs little."""

TOLERANCE = 0.05


def body(rng: random.Random, topics: list[str]) -> bytes:
    """Some 2,000 shared tokens and a few of its own."""
    content = rng.choice(topics) + rng.randbytes(40).hex()
    message = {"role": "user", "content": content}
    return json.dumps({"model": "m", "max_tokens": 1, "messages": [message]}).encode()


async def send(stack: LocalStack, count: int, topics: list[str], seed: int) -> int:
    """Send requests from four clients; how many failed."""
    rng = random.Random(seed)
    url = f"{stack.url(POOL)}/v1/chat/completions"
    bodies = iter([body(rng, topics) for _ in range(count)])
    failed = 0

    async def client(http: aiohttp.ClientSession) -> None:
        nonlocal failed
        for each in bodies:
            headers = {"content-type": "application/json"}
            async with http.post(url, data=each, headers=headers) as reply:
                await reply.read()
                failed += reply.status != 200

    async with aiohttp.ClientSession() as http:
        await asyncio.gather(*(client(http) for _ in range(4)))
    return failed


async def replicas(stack: LocalStack, router: int = 0) -> dict[str, dict[str, Any]]:
    pools = await get_json(f"{stack.routers[router].admin}/pools")
    found: dict[str, dict[str, Any]] = pools[POOL]["replicas"]
    return found


async def engine_rates(stack: LocalStack) -> dict[str, tuple[float, float]]:
    """Queries and hits, as the replicas themselves tell."""
    found = {}
    async with aiohttp.ClientSession() as http:
        for address in stack.replicas:
            async with http.get(f"http://{address}/metrics") as reply:
                lines = (await reply.text()).splitlines()
            values = [
                next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))
                for name in ("vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total")
            ]
            found[address] = (values[0], values[1])
    return found


async def predicted(stack: LocalStack) -> dict[str, tuple[float, float]]:
    """Prompt tokens and matched tokens of each replica, over both routers."""
    sums = {address: [0.0, 0.0] for address in stack.replicas}
    async with aiohttp.ClientSession() as http:
        for router in stack.routers:
            async with http.get(f"{router.admin}/metrics") as reply:
                lines = (await reply.text()).splitlines()
            for line in lines:
                for at, name in enumerate(("prompt", "matched")):
                    if line.startswith(f"prefix_extproc_replica_{name}_tokens_total{{"):
                        address = line.partition('replica="')[2].partition('"')[0]
                        sums[address][at] += float(line.rpartition(" ")[2])
    return {address: (total, matched) for address, (total, matched) in sums.items()}


async def test_predictions_are_true_again_after_a_replica_was_killed() -> None:
    metadata = {
        "x-prefix-pool": POOL,
        "x-prefix-metrics": "/metrics",
        "x-prefix-metrics-interval": "1s",
        "x-prefix-eject-time": "1s",
        "x-prefix-slow-start": "1s",
    }
    rng = random.Random(7)
    topics = [rng.randbytes(TOPIC_BYTES).hex() for _ in range(TOPICS)]
    async with LocalStack(
        [ListenerConfig(POOL, metadata=metadata)],
        routers=2,
        replicas=3,
        replica_options=ReplicaOptions(speed=float("inf")),
        router_arguments=["--store-deadline-ms", "1000"],
    ) as stack:
        assert await send(stack, 60, topics, 1) == 0

        async def all_told() -> bool:
            pages = [await replicas(stack, number) for number in range(2)]
            return all(
                state["engine"] is not None and state["engine"].get("queried_tokens")
                for page in pages
                for state in page.values()
            )

        await until(all_told, LIMIT_S)
        before = await replicas(stack)
        dead, victim = stack.replicas[1], stack.replica_processes[1]
        load = asyncio.create_task(send(stack, 200, topics, 2))
        await asyncio.sleep(0.1)
        await victim.kill()
        await victim.start(LIMIT_S)
        await load

        async def voided() -> bool:
            pages = [await replicas(stack, number) for number in range(2)]
            well = all(state["health"] == "healthy" for page in pages for state in page.values())
            return bool(well and pages[0][dead]["epoch"] > before[dead]["epoch"])

        await until(voided, LIMIT_S)
        after = await replicas(stack)
        assert after[dead]["incarnation"] != before[dead]["incarnation"]
        assert [after[each]["epoch"] for each in stack.replicas if each != dead] == [
            before[each]["epoch"] for each in stack.replicas if each != dead
        ]

        # From here on both count the same requests.
        told, counted = await predicted(stack), await engine_rates(stack)
        topics += [rng.randbytes(TOPIC_BYTES).hex() for _ in range(2 * TOPICS)]
        assert await send(stack, 300, topics, 3) == 0
        told_then, counted_then = await predicted(stack), await engine_rates(stack)
        for address in stack.replicas:
            total, matched = (
                then - at for then, at in zip(told_then[address], told[address], strict=True)
            )
            queried, hits = (
                then - at for then, at in zip(counted_then[address], counted[address], strict=True)
            )
            assert matched > 0, "every replica is asked for what it has seen"
            rates = matched / total, hits / queried
            assert abs(rates[0] - rates[1]) <= TOLERANCE, (address, rates)
