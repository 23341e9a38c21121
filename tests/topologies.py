"""Real servers in company: a Cluster, a Sentinel with its primary, and one that speaks TLS."""

import asyncio
import contextlib
import shlex
import shutil
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from tests.valkey import Valkey, free_port

SLOTS = 16384
READY_S = 30.0

HAS_TLS = shutil.which("redis-server") is not None and shutil.which("openssl") is not None
"""Whether a Redis with TLS, and what makes it a certificate, are installed."""


async def command(node: Valkey, *words: object) -> Any:
    """Ask one server."""
    client: Any = Redis(host="127.0.0.1", port=node.port)
    for name in ("INFO", "CLUSTER INFO"):
        client.response_callbacks.pop(name, None)
    try:
        return await client.execute_command(*words)
    finally:
        await client.aclose()


@asynccontextmanager
async def cluster(masters: int = 3, *, replicated: bool = False) -> AsyncIterator[list[Valkey]]:
    """A Cluster that has agreed on all slots: its masters, and then a replica of each."""
    options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-port"]
    count = masters * (2 if replicated else 1)
    nodes = [Valkey(*options, str(free_port())) for _ in range(count)]
    try:
        for node in nodes:
            await asyncio.to_thread(node.start)
        await _meet(nodes, masters)
        yield nodes
    finally:
        for node in nodes:
            node.remove()


async def _meet(nodes: Sequence[Valkey], masters: int) -> None:
    bounds = [number * SLOTS // masters for number in range(masters + 1)]
    bus = nodes[0].option("--cluster-port")
    for number, node in enumerate(nodes):
        if number < masters:
            slots = bounds[number], bounds[number + 1] - 1
            await command(node, "CLUSTER", "ADDSLOTSRANGE", *slots)
        await command(node, "CLUSTER", "MEET", "127.0.0.1", nodes[0].port, bus)
    known = f"cluster_known_nodes:{len(nodes)}\r".encode()
    async with asyncio.timeout(READY_S):
        for node in nodes:
            await _tells(node, b"cluster_state:ok", "CLUSTER", "INFO")
            await _tells(node, known, "CLUSTER", "INFO")
        for number, node in enumerate(nodes[masters:]):
            name = await command(nodes[number], "CLUSTER", "MYID")
            await command(node, "CLUSTER", "REPLICATE", name)
        for node in nodes[masters:]:
            await _tells(node, b"master_link_status:up", "INFO", "replication")


async def _tells(node: Valkey, fact: bytes, *words: str) -> None:
    while fact not in bytes(await command(node, *words)):
        await asyncio.sleep(0.1)


@asynccontextmanager
async def sentinel(
    folder: Path, *, password: str = "", replicated: bool = False
) -> AsyncIterator[tuple[Valkey, list[Valkey]]]:
    """A Sentinel that watches the service ``kv``: its primary, and then a replica of that."""
    secret = ["--requirepass", password, "--masterauth", password] if password else []
    primary = Valkey(*secret)
    servers = [primary]
    watcher = Valkey()
    try:
        await asyncio.to_thread(primary.start)
        if replicated:
            servers.append(Valkey(*secret, "--replicaof", f"127.0.0.1 {primary.port}"))
            await asyncio.to_thread(servers[1].start)
        lines = [
            f"sentinel monitor kv 127.0.0.1 {primary.port} 1",
            "sentinel down-after-milliseconds kv 1000",
            "sentinel failover-timeout kv 5000",
        ]
        if password:
            lines.append(f"sentinel auth-pass kv '{password}'")
        config = folder / "sentinel.conf"
        config.write_text("\n".join([*lines, ""]))
        watcher.configuration = str(config)
        await asyncio.to_thread(watcher.start)
        async with asyncio.timeout(READY_S):
            while len(await command(watcher, "SENTINEL", "REPLICAS", "kv")) < len(servers) - 1:
                await asyncio.sleep(0.1)
        yield watcher, servers
    finally:
        for each in (watcher, *servers):
            each.remove()


@asynccontextmanager
async def tls_server(folder: Path) -> AsyncIterator[tuple[int, Path]]:
    """A Redis that speaks TLS alone: its port, and the certificate that it was just made."""
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    make += " -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    make += " -keyout key.pem -out cert.pem"
    made = await asyncio.create_subprocess_exec(
        *make.split(), cwd=folder, stderr=asyncio.subprocess.DEVNULL
    )
    assert await made.wait() == 0
    port, certificate = free_port(), folder / "cert.pem"
    serve = f"redis-server --port 0 --tls-port {port} --bind 127.0.0.1 --save '' --dir ."
    serve += " --tls-cert-file cert.pem --tls-key-file key.pem --tls-ca-cert-file cert.pem"
    serve += " --tls-auth-clients no"
    server = await asyncio.create_subprocess_exec(
        *shlex.split(serve), cwd=folder, stdout=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(READY_S):
            while True:
                with contextlib.suppress(OSError):
                    trusted = ssl.create_default_context(cafile=certificate)
                    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusted)
                    writer.close()
                    break
                await asyncio.sleep(0.05)
        yield port, certificate
    finally:
        server.terminate()
        await server.wait()
