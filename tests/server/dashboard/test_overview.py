"""What the dashboard reads."""

import asyncio
import json
import socket

from tests.server.conftest import STATIC, Serve
from tests.server.messages import chat, request_body, request_headers
from tests.server.test_admin import get, get_json, request
from tests.server.test_stream import end, exchange

SECRET = "The butler did it, in the library. " * 100


async def test_everything_that_the_page_shows(serve: Serve) -> None:
    served = await serve()
    first, second = await request(served), await request(served)
    await end(first)
    while served.app.router.stats.open > 1:
        await asyncio.sleep(0.01)

    found = await get_json(served, "/overview")

    assert found["open_streams"] == 1
    assert found["store"]["kind"] == "memory"
    assert found["store"]["breaker"] == "closed"
    pool = found["pools"]["llm"]
    assert pool["strategy"] == "kv_aware"
    assert pool["recent"]["decisions"] == 2
    assert pool["recent"]["reasons"] == {"cold": 1, "matched": 1}
    assert pool["recent"]["start"]["count"] == 2
    assert pool["recent"]["whole"]["count"] == 1
    replicas = {each["address"]: each for each in pool["replicas"]}
    assert sorted(replicas) == ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"]
    assert sorted(each["share"] for each in replicas.values()) == [0.0, 0.0, 1.0]
    assert sorted(each["in_flight"] for each in replicas.values()) == [0, 0, 1]
    [prefix] = pool["prefixes"]
    assert prefix["requests"] == 1
    assert prefix["tokens"] > 500
    assert [replicas[each]["share"] for each in prefix["replicas"]] == [1.0]
    await end(second)


async def test_settings_in_force_by_route(serve: Serve) -> None:
    served = await serve()
    call = served.open((*STATIC, ("x-prefix-strategy", "random")))
    await exchange(call, request_headers(), request_body(chat("Hello")))

    pools = (await get_json(served, "/overview"))["pools"]

    settings = {each["key"]: each for each in pools["llm"]["routes"]["route"]}
    assert settings["x-prefix-strategy"] == {
        "key": "x-prefix-strategy",
        "value": "random",
        "default": False,
    }
    assert settings["x-prefix-replicas"]["value"] == "10.0.0.1:80,10.0.0.2:80,10.0.0.3:80"
    assert settings["x-prefix-ttl"]["default"] is True
    await end(call)


async def test_no_prompt_is_shown(serve: Serve) -> None:
    served = await serve()
    for _ in range(2):
        call = served.open()
        await exchange(call, request_headers(), request_body(chat(SECRET)))
        await end(call)

    _, text = await get(served, "/overview")

    assert json.loads(text)["pools"]["llm"]["prefixes"]
    assert "butler" not in text


async def test_a_store_that_is_away_is_told(serve: Serve) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    served = await serve(store=f"redis://user:secret@127.0.0.1:{port}/0")

    _, text = await get(served, "/overview")

    assert json.loads(text)["store"]["breaker"] == "open"
    assert "secret" not in text
