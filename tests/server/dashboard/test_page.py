"""The dashboard in a real browser."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from extproc.replicas.engine.engines import TOPIC
from extproc.replicas.engine.report import Report
from tests.server.conftest import Serve
from tests.server.dashboard.browser import CHROMIUM, Browser
from tests.server.messages import chat, request_body, request_headers
from tests.server.test_admin import LONG, request
from tests.server.test_stream import end, exchange

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")
READY = "document.body !== null && document.body.dataset.ready === 'yes'"
REPLICAS = "document.querySelectorAll('#replicas tbody tr')"
HOSTILE = "<img src=x onerror=\"document.title='taken'\">"


@pytest.fixture
async def browser(tmp_path: Path) -> AsyncIterator[Browser]:
    async with Browser(tmp_path / "profile") as browser:
        yield browser


@pytest.mark.parametrize(
    "path", ["/", "/dashboard.css", "/dashboard.js", "/explain.js", "/dashboard.svg"]
)
async def test_a_strict_policy_and_nothing_from_elsewhere(serve: Serve, path: str) -> None:
    served = await serve()
    async with aiohttp.ClientSession() as client, client.get(served.pages + path) as response:
        policy = response.headers["Content-Security-Policy"]
        text = await response.text()

    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert "https://" not in text
    assert "innerHTML" not in text


@needs_chromium
async def test_the_page_shows_pools_and_replicas(serve: Serve, browser: Browser) -> None:
    served = await serve()
    await browser.open(served.pages + "/")
    await browser.until(READY)
    assert await browser.run("document.getElementById('empty').hidden") is False
    calls = [await request(served), await request(served)]

    await browser.until(REPLICAS + ".length === 3")

    text = await browser.run("document.getElementById('pool').innerText")
    for part in ("10.0.0.2:80", "healthy", "matched", "x-prefix-prefill-rate", "100.0 %"):
        assert part in text
    assert browser.complaints == []
    for call in calls:
        await end(call)


@needs_chromium
async def test_predictions_stand_beside_what_engines_count(serve: Serve, browser: Browser) -> None:
    served = await serve()
    counted = Report("vllm", kv_permille=125, queried_tokens=1000, hit_tokens=400)

    def tell(report: Report) -> None:
        served.app.router.store.post("llm", TOPIC + "10.0.0.1:80", report.text(), ttl_s=600)

    await end(await request(served))
    tell(counted)
    await browser.open(served.pages + "/")
    await browser.until(REPLICAS + ".length === 3")
    await browser.until(REPLICAS + "[0].innerText.includes('12.5 %')")
    text = await browser.run(REPLICAS + "[0].innerText")
    assert text.count("%") == 2, "share and KV use; the meter begins now"

    tell(replace(counted, queried_tokens=2000, hit_tokens=1100))

    await browser.until(REPLICAS + "[0].innerText.includes(', 70.0 %')")
    assert browser.complaints == []


@needs_chromium
async def test_names_are_text_and_not_markup(serve: Serve, browser: Browser) -> None:
    served = await serve()
    call = served.open((("x-prefix-replicas", "10.0.0.1:80"), ("x-prefix-tenant-header", "x")))
    await exchange(call, request_headers(cluster=HOSTILE), request_body(chat("Hello")))

    await browser.open(served.pages + "/")
    await browser.until(READY)

    assert await browser.run("document.getElementById('pools').value") == HOSTILE
    assert await browser.run("document.querySelectorAll('img').length") == 0
    assert await browser.run("document.title") == "prefix-extproc"
    assert browser.complaints == []
    await end(call)


@needs_chromium
@pytest.mark.parametrize("dark", [False, True])
async def test_a_phone_shows_it_without_scrolling_sideways(
    serve: Serve, browser: Browser, dark: bool
) -> None:
    served = await serve()
    calls = [await request(served), await request(served)]
    await browser.shape(375, 812, dark=dark)
    await browser.open(served.pages + "/")
    await browser.until(READY)

    assert await browser.run("document.documentElement.scrollWidth") <= 375
    ground = await browser.run("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(17, 22, 28)") is dark
    for call in calls:
        await end(call)


@needs_chromium
async def test_it_works_by_keyboard(serve: Serve, browser: Browser) -> None:
    served = await serve()
    call = await request(served)
    await browser.open(served.pages + "/")
    await browser.until(READY)

    reached = []
    for _ in range(12):
        await browser.press("Tab", 9)
        reached.append(await browser.run("document.activeElement.id"))
        if reached[-1] == "pause":
            await browser.press(" ", 32, " ")
        if reached[-1] == "defaults":
            await browser.press(" ", 32, " ")

    assert {"pools", "pause", "routes", "defaults"} <= set(reached)
    assert await browser.run("document.getElementById('pause').ariaPressed") == "true"
    assert "x-prefix-ttl" in await browser.run("document.getElementById('settings').innerText")
    await end(call)


@needs_chromium
async def test_it_tells_when_the_router_is_gone(serve: Serve, browser: Browser) -> None:
    served = await serve()
    await browser.open(served.pages + "/")
    await browser.until(READY)

    await served.stop()

    await browser.until("document.getElementById('problem').hidden === false")


@needs_chromium
@pytest.mark.parametrize("dark", [False, True])
async def test_a_pasted_body_is_explained(serve: Serve, browser: Browser, dark: bool) -> None:
    served = await serve()
    calls = [await request(served), await request(served)]
    await browser.shape(375 if dark else 1100, 812, dark=dark)
    await browser.open(served.pages + "/")
    await browser.until(READY)

    await browser.run("document.getElementById('body').focus()")
    await browser.insert(chat(LONG).decode())
    await browser.press("Tab", 9)
    assert await browser.run("document.activeElement.textContent") == "Explain"
    await browser.press("Enter", 13, "\r")

    await browser.until("document.getElementById('explained').hidden === false")
    assert (await browser.run("document.getElementById('verdict').textContent")).startswith(
        "matched: 10.0.0."
    )
    assert await browser.run("document.querySelectorAll('#candidates tbody tr').length") == 3
    assert await browser.run("document.querySelectorAll('#candidates .chosen').length") == 1
    assert await browser.run("document.querySelectorAll('#checkpoints tbody tr').length") > 10
    assert await browser.run("document.documentElement.scrollWidth") <= (375 if dark else 1100)
    assert browser.complaints == []
    for call in calls:
        await end(call)
