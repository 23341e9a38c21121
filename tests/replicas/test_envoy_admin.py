"""An Envoy's admin interface; the real one is asked in tests/envoy."""

import json
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from envoy.admin.v3.clusters_pb2 import HostHealthStatus
from envoy.config.core.v3.health_check_pb2 import HealthStatus

from extproc.replicas.endpoint import Endpoint, SourceError
from extproc.replicas.envoy_admin import (
    UNHEALTHY_EDS,
    UNHEALTHY_FLAGS,
    AdminFeed,
    endpoints_of,
)
from extproc.replicas.target import AdminTarget
from tests.replicas.sinks import following

A, B = "10.0.0.1:80", "10.0.0.2:80"


def host(address: str, **more: Any) -> dict[str, Any]:
    ip, _, port = address.rpartition(":")
    return {"address": {"socket_address": {"address": ip, "port_value": int(port)}}, **more}


def clusters(*hosts: dict[str, Any]) -> dict[str, Any]:
    return {
        "cluster_statuses": [
            {"name": "other", "host_statuses": [host("10.0.0.9:80")]},
            {"name": "llm", "host_statuses": list(hosts)},
        ]
    }


def test_zones_weights_and_priorities() -> None:
    locality = {"region": "west", "zone": "west-1"}
    found = endpoints_of(
        clusters(
            host(A, weight=3, locality=locality, priority=1),
            host("fd00::1:80", locality={"region": "west"}),
            {"address": {"pipe": {"path": "/run/replica.sock"}}},
            {"address": {"envoy_internal_address": {"server_listener_name": "x"}}},
        ),
        "llm",
    )
    assert found == [
        Endpoint(A, "west-1", 3, 1),
        Endpoint("[fd00::1]:80", "west"),
    ]


@pytest.mark.parametrize(
    ("status", "healthy"),
    [
        ({}, True),
        ({"eds_health_status": "HEALTHY"}, True),
        ({"eds_health_status": "UNKNOWN"}, True),
        ({"eds_health_status": "UNHEALTHY"}, False),
        ({"eds_health_status": "DRAINING"}, False),
        ({"eds_health_status": "TIMEOUT"}, False),
        ({"eds_health_status": "DEGRADED"}, False),
        ({"eds_health_status": "HEALTHY", "failed_outlier_check": True}, False),
        ({"eds_health_status": "HEALTHY", "failed_active_health_check": True}, False),
        ({"pending_active_hc": True}, False),
        ({"pending_dynamic_removal": True}, False),
        ({"excluded_via_immediate_hc_fail": True}, False),
        ({"failed_active_degraded_check": True}, False),
    ],
)
def test_envoys_own_health(status: dict[str, Any], healthy: bool) -> None:
    assert endpoints_of(clusters(host(A, health_status=status)), "llm") == [
        Endpoint(A, healthy=healthy)
    ]


def test_the_flags_are_envoys() -> None:
    assert set(UNHEALTHY_FLAGS) < {field.name for field in HostHealthStatus.DESCRIPTOR.fields}
    assert set(HealthStatus.keys()) > UNHEALTHY_EDS


def test_a_cluster_without_hosts_is_an_answer() -> None:
    assert endpoints_of({"cluster_statuses": [{"name": "llm"}]}, "llm") == []


@pytest.mark.parametrize("answer", [{}, [], None, {"cluster_statuses": [7]}, clusters()])
def test_a_cluster_that_is_not_there(answer: Any) -> None:
    with pytest.raises(SourceError, match="this Envoy has no cluster 'missing'"):
        endpoints_of(answer, "missing")


class Admin:
    """Answers as it is told."""

    def __init__(self) -> None:
        self.status = 200
        self.body = json.dumps(clusters(host(A)))
        self.asked: list[str] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.path_qs)
        return web.Response(status=self.status, text=self.body)


async def test_it_is_asked_again_and_again_and_may_fail() -> None:
    admin, app = Admin(), web.Application()
    app.add_routes([web.get("/clusters", admin.answer)])
    async with TestServer(app, host="127.0.0.1") as server:
        assert server.port is not None
        async with following(
            AdminFeed(AdminTarget("127.0.0.1", server.port, "llm", interval_s=0.02))
        ) as told:
            await told.until(A)
            admin.body = json.dumps(clusters(host(A), host(B)))
            await told.until(A, B)
            admin.status = 503
            assert "answers 503 instead of 200" in await told.problem()
            admin.status, admin.body = 200, "<html>"
            while "does not answer JSON" not in await told.problem(len(told.problems) + 1):
                pass
            admin.body = json.dumps(clusters(host(B)))
            await told.until(B)
    assert set(admin.asked) == {"/clusters?format=json"}


async def test_nobody_there(unused_tcp_port: int) -> None:
    async with following(AdminFeed(AdminTarget("127.0.0.1", unused_tcp_port, "llm"))) as told:
        problem = await told.problem()
    assert problem == (
        f"http://127.0.0.1:{unused_tcp_port}/clusters?format=json: connection refused; "
        "is Envoy's admin interface there?"
    )
