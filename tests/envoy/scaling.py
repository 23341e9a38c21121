"""The local stack with replicas that come and go, and every source that can tell so."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any

from envoy_data_plane.envoy.config.core.v3 import HealthStatus

from extproc.lab.envoy_clusters import REPLICAS_CLUSTER
from extproc.lab.envoy_config import ListenerConfig
from extproc.lab.processes import Part
from extproc.lab.stack import REPLICA_COMMAND, LocalStack, ReplicaOptions, answers
from tests.envoy.conftest import get_json
from tests.replicas.control_plane import ControlPlane, assignment, controlling
from tests.replicas.dns_server import DnsServer, serving

NAME = "replicas.example"
SERVICE = "_llm._tcp.example"
LIMIT_S = 60.0
INTERVAL = "interval=100ms"


class ScalingStack(LocalStack):
    """Envoy's cluster of replicas is in an EDS file, which ``serve`` replaces.

    The replicas differ by address rather than by port, as they do in DNS.
    """

    names: DnsServer
    plane: ControlPlane

    @property
    def eds_path(self) -> str:
        return str(self.folder / "eds.json")

    def url_of(self, source: str) -> str:
        """The discovery URL of a kind of source."""
        plane = f"{self.plane.address}/{REPLICAS_CLUSTER}"
        server, port = self.names.address, self.replicas[0].rpartition(":")[2]
        return {
            "envoy-admin": f"envoy-admin://{self.envoy_admin.removeprefix('http://')}"
            f"/{REPLICAS_CLUSTER}?{INTERVAL}",
            "file": f"file://{self._envoy_config}?cluster={REPLICAS_CLUSTER}&{INTERVAL}",
            "dns": f"dns://{NAME}:{port}?server={server}&{INTERVAL}",
            "dns+srv": f"dns+srv://{SERVICE}?server={server}&{INTERVAL}",
            "eds": f"eds://{plane}",
            "eds-delta": f"eds://{plane}?protocol=delta",
        }[source]

    def serve(self, addresses: Sequence[str], draining: Sequence[str] = ()) -> None:
        """Tell Envoy and every source who is there."""
        hosts = [address.partition(":")[0] for address in addresses]
        self.names.put(NAME, "A", *hosts, ttl=0)
        targets = [f"0 1 {address.partition(':')[2]} r{n}." for n, address in enumerate(addresses)]
        self.names.put(SERVICE, "SRV", *targets, ttl=0)
        for number, host in enumerate(hosts):
            self.names.put(f"r{number}", "A", host, ttl=0)
        message = assignment(REPLICAS_CLUSTER, *addresses, zone="here")
        for endpoint, address in zip(message.endpoints[0].lb_endpoints, addresses, strict=True):
            if address in draining:
                endpoint.health_status = HealthStatus.DRAINING
        self.plane.put(message)
        kind = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
        resource = {"@type": kind, **message.to_dict()}
        new = self.folder / "eds.new"
        new.write_text(json.dumps({"versionInfo": "0", "resources": [resource]}))
        new.replace(self.eds_path)  # Envoy watches for moves

    async def in_envoy(self) -> set[str]:
        """Who is in Envoy's cluster."""
        clusters = await get_json(f"{self.envoy_admin}/clusters?format=json")
        found: set[str] = set()
        for cluster in clusters["cluster_statuses"]:
            if cluster["name"] == REPLICAS_CLUSTER:
                for host in cluster.get("host_statuses", ()):
                    socket = host["address"]["socket_address"]
                    found.add(f"{socket['address']}:{socket['port_value']}")
        return found

    async def discovery(self, pool: str) -> dict[str, Any]:
        """What the router tells of a pool's source; empty before its first request."""
        pools = await get_json(f"{self.routers[0].admin}/pools")
        found: dict[str, Any] = (pools.get(pool) or {}).get("discovery") or {}
        return found

    async def healthy(self, pool: str) -> dict[str, bool]:
        """Replica to whether a pool's source calls it healthy."""
        replicas = (await self.discovery(pool)).get("replicas", {})
        return {address: about["healthy"] for address, about in replicas.items()}

    async def followed(self, pool: str, addresses: Sequence[str]) -> None:
        """Wait until Envoy and a pool's source have exactly these replicas, all healthy."""
        async with asyncio.timeout(LIMIT_S):
            while await self.healthy(pool) != dict.fromkeys(addresses, True):
                await asyncio.sleep(0.05)
            while await self.in_envoy() != set(addresses):
                await asyncio.sleep(0.05)

    def _make_replicas(self, count: int, options: ReplicaOptions) -> list[str]:
        port = self._ports.take()
        addresses = [f"127.0.0.{11 + number}:{port}" for number in range(count)]
        argv = [sys.executable, *REPLICA_COMMAND, "--speed", str(options.speed)]
        for address in addresses:
            argv += ["--listen", address]
        ready = answers(f"http://{addresses[-1]}/health")
        log = self.folder / "replicas.log"
        self.replica_processes.append(Part("replicas", argv, log=log, ready=ready))
        return addresses

    def _write_envoy_config(self) -> None:
        super()._write_envoy_config()
        config = json.loads(self._envoy_config.read_text())
        config["node"] = {"id": "lab", "cluster": "lab"}
        for cluster in config["staticResources"]["clusters"]:
            if cluster["name"] == REPLICAS_CLUSTER:
                del cluster["loadAssignment"]
                source = {
                    "resourceApiVersion": "V3",
                    "pathConfigSource": {"path": self.eds_path},
                }
                cluster |= {"type": "EDS", "edsClusterConfig": {"edsConfig": source}}
        self._envoy_config.write_text(json.dumps(config))


@asynccontextmanager
async def scaling(
    sources: Sequence[str],
    replicas: int,
    *,
    at_first: int = 3,
    settings: Mapping[str, str] = MappingProxyType(
        {"x-prefix-uncached-weight": "100"}  # no load of ours outweighs a cached prompt
    ),
) -> AsyncIterator[ScalingStack]:
    """A stack with one listener and one pool for each kind of source."""
    async with serving() as names, controlling() as plane:
        listeners: list[ListenerConfig] = []
        stack = ScalingStack(
            listeners,
            replicas=replicas,
            replica_options=ReplicaOptions(speed=float("inf")),
            router_arguments=["--store-deadline-ms", "900"],
        )
        stack.names, stack.plane = names, plane
        for source in sources:
            metadata = {
                "x-prefix-pool": source,
                "x-prefix-discovery": stack.url_of(source),
                **settings,
            }
            listeners.append(ListenerConfig(source, metadata=metadata, static_replicas=False))
            stack._listener_ports[source] = stack._ports.take()
        stack.serve(stack.replicas[:at_first])
        async with stack as started:
            yield started
