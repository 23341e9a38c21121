"""What would become of a request that is pasted into the dashboard."""

import io
import json
from typing import Any

import aiohttp
import pytest

from extproc.server.paste_box import LARGEST
from tests.server.conftest import STATIC, Serve, Served
from tests.server.messages import chat, request_body, request_headers
from tests.server.test_admin import LONG, get, request
from tests.server.test_stream import end, exchange

SECRET = "The butler did it, in the library. " * 100


async def ask(served: Served, **question: Any) -> tuple[int, Any]:
    async with (
        aiohttp.ClientSession() as client,
        client.post(served.pages + "/explain", json={"pool": "llm", **question}) as response,
    ):
        return response.status, await response.json()


async def test_it_goes_where_the_next_request_goes(serve: Serve) -> None:
    served = await serve()
    call = await request(served)

    status, told = await ask(served, route="route", body=chat(LONG).decode())

    assert status == 200
    assert told["reason"] == "matched"
    assert told["api"] == "chat"
    assert told["model"] == "m"
    assert told["problem"] is None
    assert told["strategy"] == "kv_aware"
    assert told["prompt_bytes"] > len(LONG)
    assert 0 < told["matched_tokens"] <= told["total_tokens"]
    assert told["checkpoints"][0]["position"] == 256
    assert told["checkpoints"][-1]["tokens"] == told["matched_tokens"]
    first, *others = told["candidates"]
    assert first["replica"] == told["ranked"][0]
    assert first["matched_tokens"] == told["matched_tokens"]
    assert first["in_flight"] == 1
    assert first["cost"] < min(other["cost"] for other in others)
    [served_by] = [
        address
        for address, state in json.loads((await get(served, "/pools"))[1])["llm"][
            "replicas"
        ].items()
        if state["in_flight"]
    ]
    assert served_by == first["replica"]
    await end(call)


async def test_asking_changes_nothing(serve: Serve, capfd: pytest.CaptureFixture[str]) -> None:
    served = await serve()
    await end(await request(served))
    before = (await get(served, "/pools"))[1]
    checkpoints = served.app.store.status().entries

    answers = [(await ask(served, body=chat(SECRET).decode()))[1] for _ in range(2)]

    assert [each["reason"] for each in answers] == ["cold", "cold"]
    assert (await get(served, "/pools"))[1] == before
    assert served.app.store.status().entries == checkpoints
    out, err = capfd.readouterr()
    for text in (json.dumps(answers), out, err, (await get(served, "/overview"))[1]):
        assert "butler" not in text


async def test_headers_and_path_count(serve: Serve) -> None:
    served = await serve()
    call = await request(served)

    other_model = chat(LONG, model="other").decode()
    assert (await ask(served, body=other_model))[1]["reason"] == "cold"
    gone = await ask(served, body=chat(LONG).decode(), headers={"Content-Type": "text/plain"})
    assert gone[1]["reason"] == "no_prompt"
    assert gone[1]["problem"]
    assert gone[1]["checkpoints"] == []
    raw = await ask(served, body=chat(LONG).decode(), path="/elsewhere")
    assert raw[1]["api"] != "chat"
    await end(call)


async def test_what_is_wrong_is_told(serve: Serve) -> None:
    served = await serve()

    status, told = await ask(served, body="{}")
    assert status == 404
    assert "no request of this pool" in told["error"]
    assert await ask(served, body=5) == (
        400,
        {"error": "body: Input should be a valid string"},
    )
    async with aiohttp.ClientSession() as client:
        url = served.pages + "/explain"
        async with client.post(url, data="{}", headers={"content-type": "text/plain"}) as response:
            assert response.status == 415
        large = io.BytesIO(b" " * (LARGEST + 1))
        kind = {"content-type": "application/json"}
        async with client.post(url, data=large, headers=kind) as response:
            assert response.status == 413


async def test_broken_bodies_are_explained_too(serve: Serve) -> None:
    served = await serve()
    await end(await request(served))

    for body in ("", "{", r'{"prompt": "\ud800"}', "[" * 10_000, '{"messages": 5}'):
        status, told = await ask(served, body=body)
        assert status == 200
        assert told["ranked"]


async def test_shadow_is_told_by_its_own_ledger(serve: Serve) -> None:
    served = await serve()
    call = served.open((*STATIC, ("x-prefix-mode", "shadow")))
    await exchange(call, request_headers(), request_body(chat(LONG)))

    told = (await ask(served, body=chat(LONG).decode()))[1]

    assert told["mode"] == "shadow"
    assert told["reason"] == "matched"
    await end(call)
