"""Decisions that explain themselves to the client, on the real Envoy, in every body mode."""

import json

import aiohttp
import pytest

from extproc.lab.stack import LocalStack
from extproc.processing import EXPLAIN, BodyMode
from tests.envoy.conftest import Variant, name_of, settled

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def ask(stack: LocalStack, listener: str, headers: dict[str, str]) -> tuple[str, str | None]:
    """Who served, and the explanation."""
    url = stack.url(listener) + "/v1/chat/completions"
    messages = [{"role": "user", "content": f"Why there, {listener}? " * 200}]
    body = json.dumps({"model": "m", "max_tokens": 1, "messages": messages})
    headers = {"content-type": "application/json", **headers}
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, data=body, headers=headers) as reply,
    ):
        await reply.read()
        assert reply.status == 200
        return reply.headers["x-replica"], reply.headers.get(EXPLAIN)


async def test_the_response_tells_why(stack: LocalStack, mode: BodyMode) -> None:
    listener = name_of(mode)
    _, silent = await ask(stack, listener, {})
    assert silent is None
    await settled(stack, listener)

    replica, explanation = await ask(stack, listener, {EXPLAIN: "1"})

    assert explanation is not None
    head, first, *others = explanation.split(", ")
    assert head.startswith("matched;strategy=kv_aware;tokens=")
    assert first.startswith(f'"{replica}";matched=')
    assert ";matched=0;" not in first
    assert len(others) == 2
    assert all(";matched=0;" in other for other in others)


async def test_not_where_the_pool_does_not_allow_it(stack: LocalStack) -> None:
    listener = name_of(BodyMode.BUFFERED_PARTIAL, Variant.ONCE)

    assert (await ask(stack, listener, {EXPLAIN: "1"}))[1] is None
