"""Holds what a router predicted against what the engines counted, over the same time. Pure."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from extproc.replicas.engine.report import Report
from extproc.server.stats import ReplicaStats


class _Mark(NamedTuple):
    """Both counts at one time."""

    total: int
    matched: int
    queried: int
    hits: int


class Truth:
    """One pool's truth meter: begins at the first look, and anew where an engine starts again.

    The units differ, so that rates are compared: the router's tokens are estimates, and of its own
    traffic alone.
    """

    def __init__(self) -> None:
        self._since: dict[str, _Mark] = {}

    def compare(
        self, counts: Mapping[str, ReplicaStats], reports: Mapping[str, Report]
    ) -> dict[str, dict[str, Any]]:
        """Replica to its rates, for people to read; of those whose engines count hits.

        Args:
            counts: What this router predicted of each replica, since its start.
            reports: What each replica's engine tells.
        """
        for gone in self._since.keys() - reports.keys():
            del self._since[gone]
        found = {}
        for replica, report in reports.items():
            if report.error or not report.queried_tokens:
                continue
            own = counts.get(replica, _NOTHING)
            now = _Mark(own.total, own.matched, report.queried_tokens, report.hit_tokens)
            since = self._since.get(replica)
            if since is None or now.queried < since.queried or now.hits < since.hits:
                since = self._since[replica] = now
            total, matched, queried, hits = (
                each - before for each, before in zip(now, since, strict=True)
            )
            found[replica] = {
                "prompt_tokens": total,
                "predicted_rate": _rate(matched, total),
                "engine_tokens": queried,
                "engine_rate": _rate(hits, queried),
            }
        return found


_NOTHING = ReplicaStats()


def _rate(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None
