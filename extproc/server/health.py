"""gRPC health of the process and its parts."""

from typing import Any

from grpc_health.v1 import health, health_pb2

SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"
LIVENESS = "liveness"
_READY = ("", "readiness", SERVICE)

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Health:
    """Answers ``grpc.health.v1.Health`` for ````, ``liveness``, ``readiness`` and the service."""

    def __init__(self) -> None:
        self.servicer: Any = health.aio.HealthServicer()

    async def serving(self) -> None:
        """The process lives and takes requests."""
        for name in (*_READY, LIVENESS):
            await self.servicer.set(name, _SERVING)

    async def draining(self) -> None:
        """The process lives, but wants no more requests."""
        for name in _READY:
            await self.servicer.set(name, _NOT_SERVING)
