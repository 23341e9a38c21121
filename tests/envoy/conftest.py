"""One Envoy, with one router, for the tests that look at single requests."""

import asyncio
import json
from collections.abc import AsyncIterator
from enum import StrEnum
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from extproc.lab.envoy_config import LONGEST_BODY, ListenerConfig
from extproc.lab.stack import LocalStack, ReplicaOptions
from extproc.processing import BodyMode

MODES = [
    BodyMode.BUFFERED_PARTIAL,
    BodyMode.STREAMED,
    BodyMode.FULL_DUPLEX_STREAMED,
    BodyMode.BUFFERED,
]

# Envoy doubles bytes where it retries a body that streams through the router.
EXACT_WITH_RETRIES = {BodyMode.BUFFERED_PARTIAL, BodyMode.BUFFERED}

SMALL_BUFFER = 32 * 1024
LARGE_BUFFER = 4 * 1024 * 1024


class Variant(StrEnum):
    """How listeners of one mode differ."""

    PLAIN = "plain"
    """A buffer that takes 2 MB, and retries where they are exact."""
    SMALL = "small"
    """A buffer of 32 KiB."""
    ONCE = "once"
    """No retries: with them Envoy doubles a body before request trailers, but for BUFFERED."""
    WHOLE = "whole"
    """As PLAIN, and Envoy has the body whole before it asks the router."""


def name_of(mode: BodyMode, variant: Variant = Variant.PLAIN) -> str:
    """The name of a mode's listener, which is its pool's name too."""
    return f"{mode}-{variant}"


def listeners() -> list[ListenerConfig]:
    return [
        ListenerConfig(
            name_of(mode, variant),
            body_mode=mode,
            metadata={
                "x-prefix-pool": name_of(mode, variant),
                "x-prefix-explain": "on" if variant is Variant.PLAIN else "off",
            },
            retry=mode in EXACT_WITH_RETRIES and variant is not Variant.ONCE,
            whole_body=variant is Variant.WHOLE,
            body_limit=None if variant is Variant.SMALL else LONGEST_BODY,
            buffer_limit=SMALL_BUFFER if variant is Variant.SMALL else LARGE_BUFFER,
            message_timeout_s=5.0,
        )
        for mode in MODES
        for variant in Variant
    ]


EMPTY_POOL = ListenerConfig(
    "empty", metadata={"x-prefix-pool": "empty"}, static_replicas=False, message_timeout_s=5.0
)
SPACED_POOL = ListenerConfig(
    "spaced",
    metadata={
        "x-prefix-pool": "spaced",
        "x-prefix-replicas": "  10.0.0.2:8080 ,  ,  10.0.0.3:8080  ",
    },
)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def stack() -> AsyncIterator[LocalStack]:
    async with LocalStack(
        [*listeners(), EMPTY_POOL, SPACED_POOL],
        replicas=3,
        replica_options=ReplicaOptions(speed=float("inf"), per_process=3),
    ) as started:
        yield started


@pytest.fixture(params=MODES, ids=str)
def mode(request: pytest.FixtureRequest) -> BodyMode:
    found: BodyMode = request.param
    return found


async def get_json(url: str) -> Any:
    async with aiohttp.ClientSession() as session, session.get(url) as reply:
        return json.loads(await reply.read())


async def pool(stack: LocalStack, name: str) -> dict[str, Any]:
    """A pool as the router's ``/pools`` shows it; empty before its first request."""
    pools = await get_json(f"{stack.routers[0].admin}/pools")
    found: dict[str, Any] = pools.get(name, {})
    return found


async def received(stack: LocalStack, path: str) -> list[dict[str, Any]]:
    """What all replicas got at a path."""
    entries = []
    for address in stack.replicas:
        entries += await get_json(f"http://{address}/lab/requests")
    return [entry for entry in entries if entry["path"] == path]


async def settled(stack: LocalStack, name: str) -> None:
    """Wait until nothing is in flight or pending in a pool."""
    async with asyncio.timeout(10):
        while True:
            replicas = (await pool(stack, name)).get("replicas") or {}
            if not any(s["in_flight"] or s["pending_tokens"] for s in replicas.values()):
                return
            await asyncio.sleep(0.05)
