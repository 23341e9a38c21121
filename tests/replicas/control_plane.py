"""A small xDS server, of envoy-data-plane's message classes: a codec apart from the client's."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
from envoy_data_plane.envoy.config.core.v3 import HealthStatus, Locality
from envoy_data_plane.envoy.config.endpoint.v3 import (
    ClusterLoadAssignment,
    Endpoint,
    LbEndpoint,
    LocalityLbEndpoints,
)
from envoy_data_plane.envoy.service.discovery.v3 import (
    DeltaDiscoveryRequest,
    DeltaDiscoveryResponse,
    DiscoveryRequest,
    DiscoveryResponse,
    Resource,
)
from envoy_data_plane.google.protobuf import Any as AnyMessage

from extproc.lab.envoy_clusters import socket_address
from extproc.lab.processes import PortPool

TYPE = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
Request = DiscoveryRequest | DeltaDiscoveryRequest


def assignment(
    name: str,
    *addresses: str,
    zone: str = "",
    weight: int | None = None,
    priority: int = 0,
    health: HealthStatus = HealthStatus.UNKNOWN,
) -> ClusterLoadAssignment:
    """An assignment of one locality."""
    endpoints = [
        LbEndpoint(
            endpoint=Endpoint(address=socket_address(address)),
            load_balancing_weight=weight,
            health_status=health,
        )
        for address in addresses
    ]
    group = LocalityLbEndpoints(
        locality=Locality(zone=zone), lb_endpoints=endpoints, priority=priority
    )
    return ClusterLoadAssignment(cluster_name=name, endpoints=[group])


class ControlPlane:
    """Serves assignments by both services and both protocols.

    Attributes:
        address: ``ip:port``.
        requests: Every request of every stream, in order of arrival.
        streams: How many streams were opened.
    """

    def __init__(self, port: int) -> None:
        self.address = f"127.0.0.1:{port}"
        self.requests: list[Request] = []
        self.streams = 0
        self._resources: dict[str, tuple[str, AnyMessage]] = {}
        self._version = 0
        self._wakers: set[asyncio.Event] = set()
        self._server: grpc.aio.Server | None = None

    def put(self, assignment: ClusterLoadAssignment) -> None:
        """Serve an assignment, by its name, from now on."""
        self.put_raw(assignment.cluster_name, AnyMessage.pack(assignment))

    def put_raw(self, name: str, resource: AnyMessage) -> None:
        """Serve anything under a name."""
        self._version += 1
        self._resources[name] = (str(self._version), resource)
        self._wake()

    def remove(self, name: str) -> None:
        """Serve an assignment no more."""
        self._version += 1
        del self._resources[name]
        self._wake()

    async def start(self, credentials: grpc.ServerCredentials | None = None) -> None:
        """Serve on the same port as before, with TLS where there are credentials."""
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        server.add_generic_rpc_handlers(
            (
                _handlers(
                    "envoy.service.endpoint.v3.EndpointDiscoveryService",
                    StreamEndpoints=self._sotw,
                    DeltaEndpoints=self._delta,
                ),
                _handlers(
                    "envoy.service.discovery.v3.AggregatedDiscoveryService",
                    StreamAggregatedResources=self._sotw,
                    DeltaAggregatedResources=self._delta,
                ),
            )
        )
        if credentials is None:
            server.add_insecure_port(self.address)
        else:
            server.add_secure_port(self.address, credentials)
        await server.start()
        self._server = server

    async def stop(self) -> None:
        """End all streams and serve no more."""
        if self._server is not None:
            await self._server.stop(None)

    def _wake(self) -> None:
        for waker in self._wakers:
            waker.set()

    async def _sotw(self, _: Any, context: Any) -> None:
        async with self._stream(context) as (first, waker):
            assert first.type_url == TYPE
            sent = first.version_info
            while True:
                waker.clear()
                names = [name for name in first.resource_names if name in self._resources]
                version = str(self._version)
                if version != sent and (names or sent):
                    sent = version
                    resources = [self._resources[name][1] for name in names]
                    await context.write(
                        DiscoveryResponse(version, resources, type_url=TYPE, nonce=f"n{version}")
                    )
                await waker.wait()

    async def _delta(self, _: Any, context: Any) -> None:
        async with self._stream(context) as (first, waker):
            assert first.type_url == TYPE
            sent = dict(first.initial_resource_versions)
            while True:
                waker.clear()
                wanted = set(first.resource_names_subscribe)
                there = {name: self._resources[name] for name in wanted & set(self._resources)}
                new = [
                    Resource(name=name, version=version, resource=resource)
                    for name, (version, resource) in there.items()
                    if sent.get(name) != version
                ]
                removed = [name for name in sent if name not in there]
                if new or removed:
                    sent = {name: version for name, (version, _) in there.items()}
                    await context.write(
                        DeltaDiscoveryResponse(
                            resources=new,
                            removed_resources=removed,
                            type_url=TYPE,
                            nonce=f"n{self._version}",
                        )
                    )
                await waker.wait()

    @asynccontextmanager
    async def _stream(self, context: Any) -> AsyncIterator[tuple[Any, asyncio.Event]]:
        """The stream's first request, and what is set when something changes."""
        self.streams += 1
        first = await context.read()
        self.requests.append(first)
        waker = asyncio.Event()
        self._wakers.add(waker)
        reader = asyncio.create_task(self._read(context))
        try:
            yield first, waker
        finally:
            self._wakers.discard(waker)
            reader.cancel()

    async def _read(self, context: Any) -> None:
        while (request := await context.read()) is not grpc.aio.EOF:
            self.requests.append(request)


def _handlers(service: str, **methods: Any) -> grpc.GenericRpcHandler:
    def handler(name: str, behavior: Any) -> Any:
        request = DeltaDiscoveryRequest if name.startswith("Delta") else DiscoveryRequest
        return grpc.stream_stream_rpc_method_handler(behavior, request.parse, bytes)

    return grpc.method_handlers_generic_handler(
        service, {name: handler(name, behavior) for name, behavior in methods.items()}
    )


def acknowledged(requests: Sequence[Request]) -> list[tuple[str, str]]:
    """Nonce, and the text of a refusal, of the requests that answer something."""
    return [
        (each.response_nonce, each.error_detail.message if each.error_detail else "")
        for each in requests
        if each.response_nonce
    ]


@asynccontextmanager
async def controlling() -> AsyncIterator[ControlPlane]:
    """A control plane on a free port."""
    plane = ControlPlane(PortPool().take())
    await plane.start()
    try:
        yield plane
    finally:
        await plane.stop()
