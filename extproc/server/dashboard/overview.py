"""What the dashboard shows, as one JSON value."""

from collections.abc import Mapping, Sequence
from time import monotonic, time
from typing import Any

from extproc import __version__
from extproc.affinity.store import StoreStatus
from extproc.pool_settings import PREFIX, PoolSettings, show
from extproc.server.dashboard.history import INTERVAL_S, WINDOW_S, History
from extproc.server.stats import PoolStats, Stats
from extproc.server.trail import Step, hottest, shares

_PREFIXES = 12

Replicas = Mapping[str, Mapping[str, Any]]
"""Address to what ``/pools`` tells of a replica."""


def overview(
    stats: Stats,
    history: History,
    status: StoreStatus,
    replicas: Mapping[str, Replicas | None],
    *,
    draining: bool,
) -> dict[str, Any]:
    """Everything that the page shows.

    Args:
        stats: The router's counts.
        history: Its last minutes.
        status: The store's state.
        replicas: Pool to its replicas; None where the store does not answer.
        draining: Whether the process is about to end.
    """
    steps = stats.trail.since(monotonic() - WINDOW_S)
    return {
        "version": __version__,
        "at": round(time(), 3),
        "interval_s": INTERVAL_S,
        "window_s": WINDOW_S,
        "draining": draining,
        "open_streams": stats.open,
        "streams": stats.streams,
        "refused": stats.refused,
        "faults": {
            "errors": dict(stats.errors),
            "violations": dict(stats.violations),
            "setting_errors": dict(stats.setting_errors),
        },
        "store": {
            "kind": status.kind,
            "shared": status.shared,
            "breaker": status.breaker,
            "detail": status.detail,
            "failures": dict(status.failures),
            "fallbacks": status.fallbacks,
            "replayed": status.replayed,
            "reclaimed": status.reclaimed,
            "entries": status.entries,
        },
        "pools": {
            name: _pool(pool, history.recent(name), replicas.get(name, {}), steps.get(name, ()))
            for name, pool in stats.pools.items()
        },
    }


def _pool(
    stats: PoolStats, recent: dict[str, Any], replicas: Replicas | None, steps: Sequence[Step]
) -> dict[str, Any]:
    share = shares(steps)
    return {
        "source": stats.source,
        "strategy": stats.settings.strategy.value,
        "mode": stats.settings.mode.value,
        "prefill_rate": stats.prefill_rate,
        "recent": recent,
        "outcomes": dict(stats.outcomes),
        "ejections": dict(stats.ejections),
        "unreadable": dict(stats.problems),
        "replicas": None
        if replicas is None
        else [
            {"address": address, **facts, "share": share.get(address, 0.0)}
            for address, facts in replicas.items()
        ],
        "prefixes": [
            {
                "hash": prefix.hash.hex(),
                "tokens": prefix.tokens,
                "requests": prefix.requests,
                "replicas": list(prefix.replicas),
            }
            for prefix in hottest(steps, _PREFIXES)
        ],
        "routes": {route: _settings(settings) for route, settings in stats.routes.items()},
    }


def _settings(settings: PoolSettings) -> list[dict[str, Any]]:
    """Every setting in force, by the key that Envoy's configuration has for it."""
    return [
        {
            "key": PREFIX + name.replace("_", "-"),
            "value": ",".join(value) if value and isinstance(value, tuple) else show(value),
            "default": value == field.default,
        }
        for name, field in PoolSettings.model_fields.items()
        for value in [getattr(settings, name)]
    ]
