"""A Sentinel that fails over, a Cluster that moves and loses, and TLS that nobody trusts."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.faults.conftest import Drills
from tests.faults.stack import POOL, FaultStack, replicas
from tests.topologies import HAS_TLS, cluster, command, sentinel, tls_server
from tests.valkey import Valkey

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]


async def test_a_sentinel_fails_over(drill: Drills, tmp_path: Path) -> None:
    async with (
        sentinel(tmp_path, replicated=True) as (watcher, servers),
        replicas() as moody,
        FaultStack(
            moody, routers=2, store=f"redis+sentinel://127.0.0.1:{watcher.port}/kv/0"
        ) as stack,
        drill(stack, "the primary behind a Sentinel is killed; its replica takes over") as it,
    ):
        assert await stack.shared()
        servers[0].stop()
        await it.mended()
        await it.until(stack.alone)
        await it.whole(stack.shared)
        assert b"role:master" in await command(servers[1], "INFO", "replication")


def url(nodes: Sequence[Valkey]) -> str:
    return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes)


async def owner(nodes: Sequence[Valkey]) -> tuple[Valkey, int]:
    """Who of a Cluster's masters has the pool, and in which slot."""
    key = f"prefix-extproc:1:{{{POOL}}}:state"
    slot = await command(nodes[0], "CLUSTER", "KEYSLOT", key)
    for first, last, (_, port, *_), *_ in await command(nodes[0], "CLUSTER", "SLOTS"):
        if first <= slot <= last:
            return next(node for node in nodes if node.port == port), slot
    raise AssertionError(slot)


async def test_a_cluster_loses_the_node_of_the_pool(drill: Drills) -> None:
    async with (
        cluster(replicated=True) as nodes,
        replicas() as moody,
        FaultStack(moody, routers=2, store=url(nodes)) as stack,
        drill(stack, "the Cluster's node of the pool is killed; its replica takes over") as it,
    ):
        assert await stack.shared()
        (await owner(nodes))[0].stop()
        await it.mended()
        await it.until(stack.alone)
        await it.whole(stack.shared)


async def test_a_slot_moves_in_a_cluster(drill: Drills) -> None:
    async with (
        cluster() as nodes,
        replicas() as moody,
        FaultStack(moody, routers=2, store=url(nodes)) as stack,
        drill(stack, "the pool's slot moves to another node of the Cluster, key by key") as it,
    ):
        assert await stack.shared()
        source, slot = await owner(nodes)
        target = next(node for node in nodes if node is not source)
        there, here = [await command(node, "CLUSTER", "MYID") for node in (target, source)]
        await command(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", here)
        await command(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", there)
        while keys := await command(source, "CLUSTER", "GETKEYSINSLOT", slot, 5):
            await command(
                source, "MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "REPLACE", "KEYS", *keys
            )
            await asyncio.sleep(0.02)
        for node in (target, source, *nodes):
            await command(node, "CLUSTER", "SETSLOT", slot, "NODE", there)
        await it.mended()
        await it.whole(stack.shared)
        assert await owner(nodes) == (target, slot)


@pytest.mark.skipif(not HAS_TLS, reason="needs a redis-server with TLS, and openssl")
async def test_the_stores_certificate_is_unknown(drill: Drills, tmp_path: Path) -> None:
    async with (
        tls_server(tmp_path) as (port, _),
        replicas() as moody,
        FaultStack(moody, routers=1, store=f"rediss://127.0.0.1:{port}/0") as stack,
        drill(stack, "the store's certificate is of an unknown CA: never shared") as it,
    ):
        await it.passes()
        await it.mended()
        await it.whole(stack.alone)
        assert "certificate" in stack.routers[0].log.read_text().lower()
