"""Members by EDS: a control plane's stream of ``ClusterLoadAssignment`` over gRPC."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
from envoy.service.discovery.v3 import ads_pb2_grpc
from envoy.service.endpoint.v3 import eds_pb2_grpc

from extproc.replicas.endpoint import Endpoint, SourceError
from extproc.replicas.target import EdsTarget
from extproc.replicas.watch import Sink
from extproc.replicas.xds import Delta, StateOfTheWorld

_OPTIONS = [
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),  # or a new channel waits out the former one's backoff
    ("grpc.keepalive_time_ms", 310_000),  # servers may count more than one in 5 minutes as abuse
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
]


class EdsFeed:
    """Subscribes to one resource. It remembers between streams which version it has.

    Args:
        target: The control plane and the resource.
        connect_s: Seconds in which the control plane must be reached.
        first_answer_s: Seconds of silence after which a resource that was never told counts as
            missing; the stream stays open.
        quiet_s: Seconds of silence after which a resource that was told on an earlier stream
            counts as unchanged.
    """

    def __init__(
        self,
        target: EdsTarget,
        *,
        connect_s: float = 5.0,
        first_answer_s: float = 15.0,
        quiet_s: float = 2.0,
    ) -> None:
        self._target = target
        self._connect_s = connect_s
        self._first_answer_s = first_answer_s
        self._quiet_s = quiet_s
        self._last: list[Endpoint] | None = None
        protocol = Delta if target.delta else StateOfTheWorld
        self._protocol: Delta | StateOfTheWorld = protocol(target.resource, target.node)

    async def follow(self, sink: Sink) -> None:
        """See ``Feed.follow``."""
        async with await self._channel() as channel:
            try:
                await asyncio.wait_for(channel.channel_ready(), self._connect_s)
            except TimeoutError:
                trust = ", or its certificate is not trusted" if self._target.tls else ""
                raise SourceError(f"no control plane answers at {self._address}{trust}") from None
            try:
                await self._talk(self._method(channel)(), sink)
            except grpc.aio.AioRpcError as error:
                text = f"{error.code().name} {error.details() or ''}".strip()[:300]
                raise SourceError(f"control plane {self._address}: {text}") from None

    @property
    def _address(self) -> str:
        host = self._target.host
        return f"[{host}]:{self._target.port}" if ":" in host else f"{host}:{self._target.port}"

    async def _channel(self) -> grpc.aio.Channel:
        target = self._target
        if not target.tls:
            return grpc.aio.insecure_channel(self._address, options=_OPTIONS)
        files = [target.ca, target.key, target.cert]
        try:
            ca, key, cert = await asyncio.gather(
                *(asyncio.to_thread(_read, each) for each in files)
            )
        except OSError as error:
            raise SourceError(f"{error.filename} cannot be read: {error.strerror}") from None
        credentials = grpc.ssl_channel_credentials(ca, key, cert)
        return grpc.aio.secure_channel(self._address, credentials, options=_OPTIONS)

    def _method(self, channel: grpc.aio.Channel) -> Any:
        if self._target.ads:
            ads = ads_pb2_grpc.AggregatedDiscoveryServiceStub(channel)
            return (
                ads.DeltaAggregatedResources
                if self._target.delta
                else ads.StreamAggregatedResources
            )
        eds = eds_pb2_grpc.EndpointDiscoveryServiceStub(channel)
        return eds.DeltaEndpoints if self._target.delta else eds.StreamEndpoints

    async def _talk(self, call: Any, sink: Sink) -> None:
        await call.write(self._protocol.first())
        read = asyncio.ensure_future(call.read())
        patience = self._first_answer_s if self._last is None else self._quiet_s
        try:
            await asyncio.wait({read}, timeout=patience)
            if not read.done():
                self._silent(sink)
            response = await read
        finally:
            read.cancel()
        while response is not grpc.aio.EOF:
            await call.write(self._take(response, sink))
            response = await call.read()
        status = f"{(await call.code()).name} {await call.details() or ''}".strip()[:300]
        raise SourceError(f"control plane {self._address} ended the stream: {status}")

    def _take(self, response: Any, sink: Sink) -> Any:
        """Pass on what a response tells. Returns the request that answers it."""
        taken = self._protocol.take(response)
        if taken.problem:
            sink.failed(SourceError(f"control plane {self._address} {taken.problem}"))
        elif taken.endpoints is not None:
            self._last = taken.endpoints
            sink.heard(taken.endpoints)
        return taken.reply

    def _silent(self, sink: Sink) -> None:
        if self._last is not None:
            sink.heard(self._last)
            return
        name = self._target.resource
        sink.failed(
            SourceError(f"control plane {self._address} tells nothing of {name!r}: does it exist?")
        )


def _read(path: str) -> bytes | None:
    return Path(path).read_bytes() if path else None
