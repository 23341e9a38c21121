"""The pages for people, probes and Prometheus."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from aiohttp import web

from extproc.affinity.store import AffinityStore, ReplicaState, StoreError
from extproc.replicas.engine.report import Report
from extproc.replicas.health import Fitness, ReplicaHealth
from extproc.replicas.watch import SourceStatus
from extproc.server.dashboard.pages import Dashboard
from extproc.server.metrics import Metrics
from extproc.server.paste_box import LARGEST
from extproc.server.stats import OTHER, PoolStats, Stats
from extproc.server.truth import Truth

_SNAPSHOT_SECONDS = 1.0


class Admin:
    """``/metrics``, ``/healthz``, ``/readyz``, ``/pools`` and the dashboard of one process.

    Args:
        store: The affinity store.
        stats: The router's counts.
        metrics: The metrics to render.
        draining: Whether the process is about to end.
        sources: Pool to the state of its discovery source.
        health: The health of a pool's replicas.
        engines: What the engines of a pool's replicas tell.
        explain: Answers what would become of a request.
    """

    def __init__(
        self,
        store: AffinityStore,
        stats: Stats,
        metrics: Metrics,
        *,
        draining: Callable[[], bool],
        sources: Callable[[], Mapping[str, SourceStatus]],
        health: Callable[[str, Iterable[str]], Mapping[str, ReplicaHealth]],
        engines: Callable[[str], Mapping[str, Report]],
        explain: Callable[[web.Request], Awaitable[web.Response]],
    ) -> None:
        self._store = store
        self._stats = stats
        self._metrics = metrics
        self._draining = draining
        self._sources = sources
        self._health = health
        self._engines = engines
        self._explain = explain
        self._truths: defaultdict[str, Truth] = defaultdict(Truth)  # by pool, as many as the stats
        self._dashboard = Dashboard(
            stats, status=store.status, replicas=self._all_replicas, draining=draining
        )

    def app(self) -> web.Application:
        """The pages as an aiohttp application."""
        app = web.Application(client_max_size=LARGEST)
        pages: dict[str, Callable[[web.Request], Awaitable[web.Response]]] = {
            "/metrics": self._render_metrics,
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/pools": self._pools,
        }
        app.add_routes([web.get(path, handler) for path, handler in pages.items()])
        app.router.add_post("/explain", self._explain)
        app.add_routes(self._dashboard.routes())
        app.cleanup_ctx.append(self._dashboard.sampling)
        return app

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        store = self._store.status()
        draining = self._draining()
        status = "draining" if draining else "ok" if store.shared else "degraded"
        body = {
            "status": status,
            "open_streams": self._stats.open,
            "store": {
                "kind": store.kind,
                "shared": store.shared,
                "breaker": store.breaker,
                "detail": store.detail,
            },
        }
        return web.json_response(body, status=503 if draining else 200)

    async def _render_metrics(self, _request: web.Request) -> web.Response:
        states = {name: found for name, found in (await self._snapshots()).items() if found}
        health = {name: self._health(name, found) for name, found in states.items()}
        engines = {name: self._engines(name) for name in states}
        return web.Response(
            body=self._metrics.render(states, health, engines),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )

    async def _pools(self, _request: web.Request) -> web.Response:
        snapshots, sources = await self._snapshots(), self._sources()
        return web.json_response(
            {
                name: {
                    "replicas": self._replicas(name, snapshots.get(name)),
                    "discovery": _discovery(sources.get(name)),
                    **_counts(stats),
                }
                for name, stats in self._stats.pools.items()
            }
        )

    async def _all_replicas(self) -> dict[str, Any]:
        return {
            name: self._replicas(name, each) for name, each in (await self._snapshots()).items()
        }

    def _replicas(self, pool: str, states: dict[str, ReplicaState] | None) -> Any:
        if states is None:
            return None
        health, engines = self._health(pool, states), self._engines(pool)
        counts = self._stats.pools[pool].replicas
        truth = self._truths[pool].compare(counts, engines)
        return {
            address: {
                "in_flight": state.in_flight,
                "pending_tokens": state.pending_tokens,
                "epoch": state.epoch,
                "incarnation": state.incarnation,
                **_health(health.get(address)),
                "passed_over": counts[address].passed_over if address in counts else 0,
                "engine": _engine(engines.get(address)),
                "truth": truth.get(address),
            }
            for address, state in states.items()
        }

    async def _snapshots(self) -> dict[str, dict[str, ReplicaState] | None]:
        """Pool to replicas; None where the store does not answer."""
        names = [name for name in self._stats.pools if name != OTHER]
        found = await asyncio.gather(*(self._snapshot(name) for name in names))
        return dict(zip(names, found, strict=True))

    async def _snapshot(self, pool: str) -> dict[str, ReplicaState] | None:
        try:
            async with asyncio.timeout(_SNAPSHOT_SECONDS):
                return dict(await self._store.snapshot(pool))
        except (StoreError, TimeoutError):
            return None


def _health(health: ReplicaHealth | None) -> dict[str, Any]:
    if health is None:
        return {"health": Fitness.HEALTHY.value}
    facts: dict[str, Any] = {"health": health.fitness.value, "weight": health.weight_milli / 1000}
    if health.ejection is not None:
        facts |= {"fault": health.ejection.fault.value, "strikes": health.ejection.strikes}
    return facts


def _engine(report: Report | None) -> dict[str, Any] | None:
    if report is None:
        return None
    return {"error": report.error} if report.error else asdict(report)


def _discovery(status: SourceStatus | None) -> dict[str, Any] | None:
    if status is None:
        return None
    return {
        "source": status.kind,
        "state": status.state.value,
        "age_s": None if status.age_s is None else round(status.age_s, 1),
        "error": status.error,
        "failures": status.failures,
        "replicas": {
            endpoint.address: {
                "zone": endpoint.zone,
                "weight": endpoint.weight,
                "priority": endpoint.priority,
                "healthy": endpoint.healthy,
            }
            for endpoint in status.endpoints
        },
    }


def _counts(stats: PoolStats) -> dict[str, Any]:
    shadow = stats.shadow
    return {
        "source": stats.source,
        "settings": stats.settings.model_dump(mode="json"),
        "decisions": stats.reasons.total(),
        "reasons": dict(stats.reasons),
        "outcomes": dict(stats.outcomes),
        "rejected": dict(stats.rejected),
        "unreadable": dict(stats.problems),
        "hits": {
            "prompt_tokens": stats.total_tokens,
            "matched_tokens": stats.matched_tokens,
            "best_tokens": stats.best_tokens,
            "rate": _rate(stats.matched_tokens, stats.total_tokens),
        },
        "prefill_rate": stats.prefill_rate,
        "unshared_decisions": stats.unshared,
        "shadow": {
            "requests": shadow.requests,
            "agreed": shadow.agreed,
            "prompt_tokens": shadow.total_tokens,
            "matched_tokens": shadow.matched_tokens,
            "served_tokens": shadow.served_tokens,
            "rate": _rate(shadow.matched_tokens, shadow.total_tokens),
            "served_rate": _rate(shadow.served_tokens, shadow.total_tokens),
        },
    }


def _rate(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0
