"""Members as an Envoy itself has them: its admin interface, with its own health flags."""

import asyncio
import os
from collections.abc import Mapping
from typing import Any

import aiohttp
import jiter

from extproc.replicas.assignment import address_of, zone_of
from extproc.replicas.endpoint import Endpoint, SourceError
from extproc.replicas.target import AdminTarget
from extproc.replicas.watch import Sink

_TIMEOUT = aiohttp.ClientTimeout(total=5)
UNHEALTHY_FLAGS = (
    "failed_active_health_check",
    "failed_active_degraded_check",
    "failed_outlier_check",
    "excluded_via_immediate_hc_fail",
    "pending_active_hc",
    "pending_dynamic_removal",
)
UNHEALTHY_EDS = {"UNHEALTHY", "DRAINING", "TIMEOUT", "DEGRADED"}


class AdminFeed:
    """Asks an Envoy's admin interface at an interval.

    Args:
        target: Where it is, and which cluster to look at.
    """

    def __init__(self, target: AdminTarget) -> None:
        self._target = target
        host = f"[{target.host}]" if ":" in target.host else target.host
        self._url = f"http://{host}:{target.port}/clusters?format=json"

    async def follow(self, sink: Sink) -> None:
        """See ``Feed.follow``."""
        async with aiohttp.ClientSession(timeout=_TIMEOUT) as session:
            while True:
                sink.heard(endpoints_of(await self._get(session), self._target.cluster))
                await asyncio.sleep(self._target.interval_s)

    async def _get(self, session: aiohttp.ClientSession) -> Any:
        try:
            async with session.get(self._url, allow_redirects=False) as reply:
                body = await reply.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            what = _reason(error)
            raise SourceError(f"{self._url}: {what}; is Envoy's admin interface there?") from None
        if reply.status != 200:
            raise SourceError(f"{self._url} answers {reply.status} instead of 200")
        try:
            return jiter.from_json(body)
        except ValueError:
            raise SourceError(f"{self._url} does not answer JSON: is this Envoy's admin?") from None


def _reason(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno:
        return os.strerror(error.os_error.errno).lower()  # its own text repeats the address
    return str(error) or "no answer in time"


def endpoints_of(clusters: Any, name: str) -> list[Endpoint]:
    """The hosts of a cluster in what ``/clusters?format=json`` answers.

    Source: ``envoy.admin.v3.Clusters``, as JSON.

    Raises:
        SourceError: The cluster is not there.
    """
    statuses = clusters.get("cluster_statuses") if isinstance(clusters, dict) else None
    for cluster in statuses if isinstance(statuses, list) else ():
        if isinstance(cluster, dict) and cluster.get("name") == name:
            hosts = cluster.get("host_statuses") or ()
            return [found for host in hosts if (found := _endpoint(host)) is not None]
    raise SourceError(f"this Envoy has no cluster {name!r}: name one that /clusters lists")


def _endpoint(host: Mapping[str, Any]) -> Endpoint | None:
    socket = (host.get("address") or {}).get("socket_address")
    if not socket:
        return None  # a pipe, or an internal listener: nothing that a header can name
    address = address_of(socket.get("address", ""), socket.get("port_value", 0))
    if not address:
        return None
    health, locality = host.get("health_status") or {}, host.get("locality") or {}
    return Endpoint(
        address,
        zone_of(locality.get("region", ""), locality.get("zone", "")),
        host.get("weight") or 1,
        host.get("priority") or 0,
        not any(health.get(flag) for flag in UNHEALTHY_FLAGS)
        and health.get("eds_health_status") not in UNHEALTHY_EDS,
    )
