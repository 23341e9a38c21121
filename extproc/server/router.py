"""From a request to a choice: what all requests of this router share."""

import os
from collections.abc import Iterable
from itertools import count
from typing import Any

import structlog

from extproc.affinity.store import AffinityStore
from extproc.pool_settings import KEYS, Parsed, PoolSettings, SettingError, parse
from extproc.processing.events import RequestHead
from extproc.prompt import unreadable
from extproc.prompt.model import Unreadable
from extproc.replicas import Observed, Source, static, subset
from extproc.server.stats import Stats

_log = structlog.get_logger(__name__)

DEFAULT_POOL = "default"
_MAX_OBSERVED = 1000
_MAX_REPORTED = 1000


class Router:
    """What the exchanges of one process share.

    Args:
        store: Affinity and load.
        window: Most bytes of a body to read where a pool does not say.
        incarnation: This process's name among all routers; part of every reservation's id.
    """

    def __init__(self, store: AffinityStore, *, window: int, incarnation: str) -> None:
        self.store = store
        self.stats = Stats()
        self._window = window
        self._ids = (f"{incarnation}-{number}" for number in count())
        self._observed: dict[str, Observed] = {}
        self._reported: set[tuple[str, str, str]] = set()

    def next_id(self) -> str:
        """A reservation id that no router has used before."""
        return next(self._ids)

    def settings(self, metadata: Iterable[Any] | None) -> Parsed:
        """The pool's settings that a stream's initial metadata brings."""
        return parse(metadata)

    def window(self, settings: PoolSettings) -> int:
        """Most bytes of a body to read."""
        return settings.inspect_window or self._window

    def source(self, pool: str, head: RequestHead, settings: PoolSettings) -> Source:
        """Where the candidates of a request come from: the first that tells."""
        hint = subset(head.metadata)
        if hint is not None:
            return hint
        if settings.replicas:
            return static(settings.replicas)
        source = self._observed.get(pool)
        if source is None:
            if len(self._observed) >= _MAX_OBSERVED:
                del self._observed[next(iter(self._observed))]
            source = self._observed[pool] = Observed(pool, self.store)
        return source

    def report(self, errors: Iterable[SettingError], head: RequestHead) -> None:
        """Count bad settings, and log each once for each route."""
        route = str(head.attributes.get("xds.route_name", ""))[:200]
        for error in errors:
            self.stats.setting_errors[error.key if error.key in KEYS else "unknown"] += 1
            once = (error.key, error.value, route)
            if once not in self._reported and len(self._reported) < _MAX_REPORTED:
                self._reported.add(once)
                _log.warning(
                    "bad pool setting",
                    key=error.key,
                    value=error.value,
                    route=route,
                    cure=error.cure,
                )


def new_incarnation() -> str:
    """A name for this process that no other has had."""
    return os.urandom(4).hex()


def pool_name(head: RequestHead, settings: PoolSettings) -> str:
    """The pool that a request belongs to."""
    return settings.pool or str(head.attributes.get("xds.cluster_name") or "") or DEFAULT_POOL


def problem_of(head: RequestHead) -> Unreadable | None:
    """Why a request with this head has no readable prompt, or None."""
    upgrade = head.header("upgrade") or head.header(":protocol")
    return unreadable(
        head.header(":method"),
        head.header(":path"),
        head.header("content-type"),
        head.header("content-encoding"),
        upgrade,
    )
