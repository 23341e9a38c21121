"""A headless Chromium, driven by its DevTools protocol."""

import asyncio
import base64
import itertools
import json
import os
import shutil
import signal
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

CHROMIUM = os.environ.get("CHROMIUM_PATH") or shutil.which("chromium")
_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
]
_DEADLINE_S = 60.0


class Browser:
    """One page of a browser of its own.

    Args:
        folder: For the browser's profile.

    Attributes:
        complaints: What the page's console and its policy complained of.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ids = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self.complaints: list[str] = []

    async def __aenter__(self) -> Self:
        assert CHROMIUM
        self._process = await asyncio.create_subprocess_exec(
            CHROMIUM,
            *_FLAGS,
            f"--user-data-dir={self._folder}",
            "about:blank",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        self._session = aiohttp.ClientSession()
        port = int((await self._told()).split()[0])
        async with self._session.get(f"http://127.0.0.1:{port}/json/list") as reply:
            [page] = [each for each in await reply.json() if each["type"] == "page"]
        self._socket = await self._session.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=0)
        self._reader = asyncio.create_task(self._read())
        for domain in ("Page", "Runtime", "Log"):
            await self.send(f"{domain}.enable")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._reader.cancel()
        await self._socket.close()
        await self._session.close()
        os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()

    async def _told(self) -> str:
        """What Chromium writes once it listens."""
        path = self._folder / "DevToolsActivePort"
        async with asyncio.timeout(_DEADLINE_S):
            while not path.exists() or len(path.read_text().split()) < 2:
                await asyncio.sleep(0.05)
        return path.read_text()

    async def _read(self) -> None:
        async for message in self._socket:
            told = json.loads(message.data)
            if "id" in told:
                self._answers.pop(told["id"]).set_result(told)
            elif told["method"] == "Log.entryAdded":
                self.complaints.append(told["params"]["entry"]["text"])
            elif told["method"] == "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(told["params"]["exceptionDetails"]))

    async def send(self, method: str, **params: Any) -> Any:
        number = next(self._ids)
        self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        told = await asyncio.wait_for(self._answers[number], _DEADLINE_S)
        assert "error" not in told, told
        return told["result"]

    async def shape(self, width: int, height: int, *, dark: bool = False) -> None:
        await self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.send("Emulation.setEmulatedMedia", features=[scheme])

    async def open(self, url: str) -> None:
        await self.send("Page.navigate", url=url)

    async def run(self, script: str) -> Any:
        """The value of a JavaScript expression in the page."""
        found = await self.send(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, script: str) -> None:
        """Wait for an expression to be true."""
        async with asyncio.timeout(_DEADLINE_S):
            while not await self.run(script):
                await asyncio.sleep(0.05)

    async def press(self, key: str, code: int = 0, text: str = "") -> None:
        for kind in ("keyDown", "keyUp"):
            await self.send(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                windowsVirtualKeyCode=code,
                **({"text": text} if text and kind == "keyDown" else {}),
            )

    async def insert(self, text: str) -> None:
        """Type into what has the focus."""
        await self.send("Input.insertText", text=text)

    async def picture(self) -> bytes:
        """The whole page as PNG."""
        found = await self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        return base64.b64decode(found["data"])
