"""Serves the dashboard."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from importlib.resources import files

from aiohttp import web

from extproc.affinity.store import StoreStatus
from extproc.server.dashboard.history import INTERVAL_S, History
from extproc.server.dashboard.overview import Replicas, overview
from extproc.server.stats import Stats

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}

_FILES = {
    "/": ("dashboard.html", "text/html"),
    "/dashboard.css": ("dashboard.css", "text/css"),
    "/dashboard.js": ("dashboard.js", "text/javascript"),
    "/explain.js": ("explain.js", "text/javascript"),
    "/dashboard.svg": ("dashboard.svg", "image/svg+xml"),
}


class Dashboard:
    """The page at ``/``, its parts, and ``/overview``, which it reads.

    Args:
        stats: The router's counts.
        status: The store's state.
        replicas: Reads every pool's replicas; None for a pool where the store does not answer.
        draining: Whether the process is about to end.
    """

    def __init__(
        self,
        stats: Stats,
        *,
        status: Callable[[], StoreStatus],
        replicas: Callable[[], Awaitable[Mapping[str, Replicas | None]]],
        draining: Callable[[], bool],
    ) -> None:
        self._stats = stats
        self._status = status
        self._replicas = replicas
        self._draining = draining
        self._history = History(stats)

    def routes(self) -> Iterable[web.RouteDef]:
        """The pages."""
        folder = files("extproc.server.dashboard") / "static"
        for path, (name, kind) in _FILES.items():
            yield web.get(path, _page((folder / name).read_bytes(), kind))
        yield web.get("/overview", self._overview)

    async def sampling(self, _app: web.Application) -> AsyncIterator[None]:
        """Note the counts from time to time while the pages are served."""
        task = asyncio.create_task(self._sample(), name="dashboard history")
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def _sample(self) -> None:
        while True:
            self._history.sample()
            await asyncio.sleep(INTERVAL_S)

    async def _overview(self, _request: web.Request) -> web.Response:
        found = overview(
            self._stats,
            self._history,
            self._status(),
            await self._replicas(),
            draining=self._draining(),
        )
        return web.json_response(found, headers=_HEADERS)


def _page(body: bytes, kind: str) -> Callable[[web.Request], Awaitable[web.Response]]:
    headers = {**_HEADERS, "Content-Type": f"{kind}; charset=utf-8"}

    async def page(_request: web.Request) -> web.Response:
        return web.Response(body=body, headers=headers)

    return page
