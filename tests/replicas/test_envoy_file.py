"""Files of Envoy's, watched."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from extproc.replicas.endpoint import Endpoint
from extproc.replicas.envoy_file import FileFeed
from extproc.replicas.target import FileTarget
from tests.replicas.control_plane import assignment, controlling
from tests.replicas.dns_server import DnsServer, serving
from tests.replicas.sinks import following

A, B = "10.0.0.1:8000", "10.0.0.2:8000"

Json = dict[str, Any]


def hosts(*addresses: str, zone: str = "") -> Json:
    """A ``ClusterLoadAssignment``."""
    endpoints = []
    for address in addresses:
        host, _, port = address.rpartition(":")
        socket = {"address": host, "port_value": int(port)}
        endpoints.append({"endpoint": {"address": {"socket_address": socket}}})
    group = {"locality": {"zone": zone}, "lb_endpoints": endpoints}
    return {"cluster_name": "llm", "endpoints": [group]}


def bootstrap(**cluster: Any) -> Json:
    return {"static_resources": {"clusters": [{"name": "llm", **cluster}]}}


def static(*addresses: str) -> Json:
    return bootstrap(type="STATIC", load_assignment=hosts(*addresses))


def eds_file(*addresses: str) -> Json:
    kind = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
    return {"resources": [{"@type": kind, **hosts(*addresses)}]}


def put(path: Path, config: Json) -> None:
    """As a configuration is replaced: by a whole file at once."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(config))
    new.replace(path)


def write(path: Path, text: str) -> None:
    path.write_text(text)


def remove(path: Path) -> None:
    path.unlink()


def feed(path: Path) -> FileFeed:
    return FileFeed(FileTarget(str(path), "llm", interval_s=0.02))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "envoy.json"


@pytest_asyncio.fixture
async def names() -> AsyncIterator[DnsServer]:
    async with serving() as server:
        yield server


async def test_a_static_cluster_is_watched(path: Path) -> None:
    put(path, static(A))
    async with following(feed(path)) as told:
        await told.until(A)
        put(path, static(A, B))
        await told.until(A, B)
        put(path, static(B))
        await told.until(B)
        put(path, bootstrap(type="STATIC"))
        await told.until()
    assert told.problems == []


async def test_yaml(path: Path) -> None:
    write(
        path,
        """
        static_resources:
          clusters:
          - name: llm
            load_assignment:
              cluster_name: llm
              endpoints:
              - locality: {zone: north}
                lb_endpoints:
                - endpoint: {address: {socket_address: {address: "::1", port_value: 8000}}}
                  load_balancing_weight: 7
        """,
    )
    async with following(feed(path)) as told:
        assert await told.until("[::1]:8000") == (Endpoint("[::1]:8000", "north", 7),)


async def test_the_shipped_configuration() -> None:
    standalone = Path(__file__).parents[2] / "envoy" / "standalone.yaml"
    async with following(FileFeed(FileTarget(str(standalone), "replicas"))) as told:
        await told.until("127.0.0.1:8001", "127.0.0.1:8002", "127.0.0.1:8003")


async def test_what_envoy_ignores_is_ignored(path: Path) -> None:
    write(
        path,
        """
        !ignore templates:
        - &socket {address: 10.0.0.1, port_value: 8000}
        static_resources:
          clusters:
          - name: llm
            load_assignment:
              endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: *socket}}}]}]
        """,
    )
    async with following(feed(path)) as told:
        await told.until(A)


async def test_a_file_that_goes_bad_is_a_problem_until_it_is_good_again(path: Path) -> None:
    put(path, static(A))
    async with following(feed(path)) as told:
        await told.until(A)
        write(path, '{"static_resources": ')
        assert f"{path}: neither YAML nor JSON" in await told.problem()
        remove(path)
        while "No such file" not in await told.problem(len(told.problems) + 1):
            pass
        put(path, static(B))
        await told.until(B)
    assert all(answer != () for answer in told.answers)


async def test_links_are_followed_as_kubernetes_exchanges_them(tmp_path: Path) -> None:
    for version, addresses in (("1", (A,)), ("2", (A, B))):
        (tmp_path / version).mkdir()
        put(tmp_path / version / "envoy.json", static(*addresses))
    data = tmp_path / "data"
    data.symlink_to(tmp_path / "1")
    (tmp_path / "envoy.json").symlink_to(data / "envoy.json")
    async with following(feed(tmp_path / "envoy.json")) as told:
        await told.until(A)
        (tmp_path / "next").symlink_to(tmp_path / "2")
        (tmp_path / "next").replace(data)
        await told.until(A, B)


async def test_an_eds_file_of_its_own(path: Path) -> None:
    put(path, eds_file(A))
    async with following(feed(path)) as told:
        await told.until(A)
        put(path, eds_file(B))
        await told.until(B)


async def test_an_eds_file_that_a_bootstrap_names(path: Path) -> None:
    other = path.with_name("eds.json")
    put(other, eds_file(A))
    put(
        path,
        bootstrap(
            type="EDS",
            eds_cluster_config={"eds_config": {"path_config_source": {"path": str(other)}}},
        ),
    )
    async with following(feed(path)) as told:
        await told.until(A)
        put(other, eds_file(A, B))
        await told.until(A, B)
        put(path, static(B))
        await told.until(B)


async def test_files_that_lead_to_each_other(path: Path) -> None:
    source = {"eds_config": {"path": str(path)}}
    put(path, bootstrap(type="EDS", eds_cluster_config=source))
    async with following(feed(path)) as told:
        assert f"{path} leads to {path}" in await told.problem()


async def test_names_of_a_strict_dns_cluster(
    path: Path, names: DnsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, _, port = names.address.rpartition(":")
    monkeypatch.setattr("dns.resolver.BaseResolver.read_resolv_conf", _reads(host, int(port)))
    names.put("replicas.example", "A", "10.0.0.1", ttl=0)
    put(
        path,
        bootstrap(
            type="STRICT_DNS",
            dns_lookup_family="V4_ONLY",
            load_assignment=hosts("replicas.example:8000", "10.0.0.2:8000", zone="south"),
        ),
    )
    async with following(feed(path)) as told:
        assert await told.until(A, B) == (Endpoint(A, "south"), Endpoint(B, "south"))
        names.put("replicas.example", "A", "10.0.0.1", "10.0.0.3", ttl=0)
        await told.until(A, B, "10.0.0.3:8000")


def _reads(host: str, port: int) -> Any:
    def read_resolv_conf(self: Any, _file: str) -> None:
        self.nameservers, self.port = [host], port

    return read_resolv_conf


@pytest.mark.parametrize("api_type", ["GRPC", "DELTA_GRPC"])
async def test_a_control_plane_that_a_bootstrap_names(path: Path, api_type: str) -> None:
    async with controlling() as plane:
        plane.put(assignment("llm", A))
        config = bootstrap(
            type="EDS",
            eds_cluster_config={
                "eds_config": {
                    "api_config_source": {
                        "api_type": api_type,
                        "grpc_services": [{"envoy_grpc": {"cluster_name": "plane"}}],
                    }
                }
            },
        )
        clusters = config["static_resources"]["clusters"]
        clusters.append({"name": "plane", "load_assignment": hosts(plane.address)})
        put(path, config)
        async with following(feed(path)) as told:
            await told.until(A)
            plane.put(assignment("llm", A, B))
            await told.until(A, B)
