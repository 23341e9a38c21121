"""Sentinel, Cluster, TLS and ACL users, each on real servers."""

import asyncio
import contextlib
import shlex
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from extproc.affinity import RedisStore, StoreError, StoreUrlError, connect, redact
from extproc.routing import Reason
from tests.affinity.test_redis import reservation
from tests.valkey import Valkey, free_port


@contextlib.asynccontextmanager
async def opened(url: str, router: str = "a") -> AsyncIterator[RedisStore]:
    client = connect(url, connect_timeout_s=10.0)  # a busy machine is slow at TLS
    store = RedisStore(client, router=router, deadline_s=10.0)
    await store.start()
    try:
        yield store
    finally:
        await store.close()


async def works(url: str) -> None:
    """A whole life through one URL, seen by a second router through the same."""
    async with opened(url, "a") as first, opened(url, "b") as second:
        taken = reservation("pool")
        cold = await first.reserve(taken)
        again = reservation("pool")
        warm = await second.reserve(again)
        assert (cold.reason, warm.reason) == (Reason.COLD, Reason.MATCHED)
        first.served(taken.id, cold.ranked[1], ok=True)
        first.release(taken.id)
        second.release(again.id)
        await first.flush()
        await second.flush()
        await first.sync_all()
        assert {each.in_flight for each in (await second.snapshot("pool")).values()} == {0}


@pytest.fixture(scope="module")
def cluster() -> Iterator[list[Valkey]]:
    options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-port"]
    nodes = [Valkey(*options, str(free_port())) for _ in range(3)]
    for node in nodes:
        node.start()
    yield nodes
    for node in nodes:
        node.remove()


async def make_cluster(nodes: list[Valkey]) -> None:
    clients: list[Any] = [Redis(host="127.0.0.1", port=node.port) for node in nodes]
    bounds = [0, 5461, 10923, 16384]
    try:
        for number, client in enumerate(clients):
            with contextlib.suppress(Exception):  # already made by an earlier test
                await client.execute_command(
                    "CLUSTER", "ADDSLOTSRANGE", bounds[number], bounds[number + 1] - 1
                )
            await client.execute_command(
                "CLUSTER", "MEET", "127.0.0.1", nodes[0].port, nodes[0].option("--cluster-port")
            )
        async with asyncio.timeout(30):
            for client in clients:
                while "cluster_state:ok" not in str(
                    await client.execute_command("CLUSTER", "INFO")
                ).replace("'cluster_state': 'ok'", "cluster_state:ok"):
                    await asyncio.sleep(0.1)
    finally:
        for client in clients:
            await client.aclose()


async def test_cluster(cluster: list[Valkey]) -> None:
    await make_cluster(cluster)
    hosts = ",".join(f"127.0.0.1:{node.port}" for node in cluster)
    await works(f"redis+cluster://{hosts}")


async def test_sentinel(tmp_path: Path) -> None:
    master = Valkey("--requirepass", "s3cret pass")
    master.start()
    config = tmp_path / "sentinel.conf"
    config.write_text(
        f"sentinel monitor kv 127.0.0.1 {master.port} 1\nsentinel auth-pass kv 's3cret pass'\n"
    )
    sentinel = Valkey()
    sentinel.configuration = str(config)
    sentinel.start()
    try:
        url = f"redis+sentinel://:s3cret%20pass@127.0.0.1:{sentinel.port}/kv/0"
        await works(url)
    finally:
        sentinel.remove()
        master.remove()


async def test_acl_user(shared_valkey: Valkey) -> None:
    client: Any = Redis(port=shared_valkey.port)
    rules = ["on", ">pa:ss@word", "~prefix-extproc:*", "+@all", "-@dangerous"]
    await client.execute_command("ACL", "SETUSER", "router", *rules)
    try:
        await works(f"redis://router:pa%3Ass%40word@127.0.0.1:{shared_valkey.port}/0")
        async with opened(f"redis://router:wrong@127.0.0.1:{shared_valkey.port}/0") as store:
            with pytest.raises(StoreError) as refused:
                await store.reserve(reservation("pool"))
            assert "wrong" not in str(refused.value).split("invalid")[0]
    finally:
        await client.execute_command("ACL", "DELUSER", "router")
        await client.aclose()


@pytest.fixture
def tls_folder(tmp_path: Path) -> Path:
    """A key and a certificate for loopback, made here and now."""
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    command += " -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    command += " -keyout key.pem -out cert.pem"
    subprocess.run(command.split(), check=True, capture_output=True, cwd=tmp_path)
    return tmp_path


@pytest.mark.skipif(
    shutil.which("redis-server") is None or shutil.which("openssl") is None,
    reason="needs a redis-server with TLS, and openssl",
)
async def test_tls(tls_folder: Path) -> None:
    port, certificate = free_port(), tls_folder / "cert.pem"
    command = f"redis-server --port 0 --tls-port {port} --bind 127.0.0.1 --save '' --dir ."
    command += " --tls-cert-file cert.pem --tls-key-file key.pem --tls-ca-cert-file cert.pem"
    command += " --tls-auth-clients no"
    server = await asyncio.create_subprocess_exec(
        *shlex.split(command), cwd=tls_folder, stdout=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(20):
            while True:
                with contextlib.suppress(OSError):
                    trusted = ssl.create_default_context(cafile=certificate)
                    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusted)
                    writer.close()
                    break
                await asyncio.sleep(0.05)
        await works(f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={certificate}")
        async with opened(f"rediss://127.0.0.1:{port}/0") as untrusting:
            with pytest.raises(StoreError, match=r"(?i)certificate"):
                await untrusting.reserve(reservation("pool"))
    finally:
        server.terminate()
        await server.wait()


@pytest.mark.parametrize(
    ("url", "cure"),
    [
        ("http://h", "unknown scheme"),
        ("redis://[::1", "no URL"),
        ("redis://h/0/1", "at most a database"),
        ("redis://h/x", "'x' is no number"),
        ("redis://h:port", "write host or host:port"),
        ("redis://", "write host or host:port"),
        ("redis://a,b", "redis+cluster://"),
        ("redis://h?ssl_ca_certs=x", "unknown option 'ssl_ca_certs'"),
        ("redis+sentinel://h:26379", "name the service"),
        ("redis+cluster://h/1", "has no databases"),
    ],
)
def test_a_wrong_url_is_named(url: str, cure: str) -> None:
    secret = url.replace("://", "://user:hunter2@", 1)
    with pytest.raises(StoreUrlError) as wrong:
        connect(secret)
    assert cure in str(wrong.value)
    assert "hunter2" not in str(wrong.value)


def test_credentials_are_redacted() -> None:
    assert redact("rediss://user:pw@h:1/0?a=b") == "rediss://h:1/0"


@pytest.mark.parametrize(
    "password", ["a/hunter2", "a?hunter2", "a#hunter2", "/hunter2", "a://hunter2"]
)
def test_a_password_that_breaks_the_url_is_not_shown(password: str) -> None:
    with pytest.raises(StoreUrlError, match="write / as %2F") as wrong:
        connect(f"redis://:{password}@h:1/0")
    assert "'redis://h:1/0'" in str(wrong.value)
    assert "hunter2" not in str(wrong.value)


@pytest.mark.parametrize(
    "url", ["redis:/:hunter2@h", "redis://:hunter2", "redis://u:hunter2\u2100@h"]
)
def test_a_password_in_what_is_no_url_is_not_shown(url: str) -> None:
    with pytest.raises(StoreUrlError) as wrong:
        connect(url)
    assert "hunter2" not in str(wrong.value)


def test_a_sentinels_password_may_hold_an_at_sign() -> None:
    url = "redis+sentinel://h:26379/kv?sentinel_password=a@hunter2"
    connect(url)
    assert redact(url) == "redis+sentinel://h:26379/kv"
