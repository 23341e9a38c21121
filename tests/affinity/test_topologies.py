"""Sentinel, Cluster, TLS and ACL users, each on real servers."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from extproc.affinity import (
    RedisStore,
    StoreError,
    StoreUrlError,
    connect,
    memory_routers,
    redact,
)
from extproc.routing import Reason
from tests.affinity.test_redis import reservation
from tests.topologies import HAS_TLS, cluster, sentinel, tls_server
from tests.valkey import Valkey


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


async def test_cluster() -> None:
    async with cluster() as nodes:
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in nodes)
        await works(f"redis+cluster://{hosts}")


async def test_sentinel(tmp_path: Path) -> None:
    async with sentinel(tmp_path, password="s3cret pass") as (watcher, _):
        await works(f"redis+sentinel://:s3cret%20pass@127.0.0.1:{watcher.port}/kv/0")


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


@pytest.mark.skipif(not HAS_TLS, reason="needs a redis-server with TLS, and openssl")
async def test_tls(tmp_path: Path) -> None:
    async with tls_server(tmp_path) as (port, certificate):
        await works(f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={certificate}")
        async with opened(f"rediss://127.0.0.1:{port}/0") as untrusting:
            with pytest.raises(StoreError, match=r"(?i)certificate"):
                await untrusting.reserve(reservation("pool"))


@pytest.mark.parametrize(
    ("url", "cure"),
    [
        ("http://h", "unknown scheme"),
        ("memory://seperate", "memory://separate?routers=3"),
        ("memory://separate?routers=0", "memory://separate?routers=3"),
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


@pytest.mark.parametrize(
    ("url", "routers"),
    [
        ("memory://", 1),
        ("memory://separate", 2),
        ("memory://separate?routers=12", 12),
        ("redis://h", None),
    ],
)
def test_a_store_of_memory_tells_how_many_routers_there_are(url: str, routers: int | None) -> None:
    assert memory_routers(url) == routers


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
