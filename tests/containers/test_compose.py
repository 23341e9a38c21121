"""The compose stack, up: traffic finds its cache, and every panel and alert has its data."""

import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.compose.files import EMPTY_WHILE_WELL, alerts, panels
from tests.containers.shell import GRAFANA, ROUTER, compose, docker, inspect

pytestmark = [pytest.mark.containers, pytest.mark.timeout(300)]

LIMIT_S = 120


def until(condition: Callable[[], bool]) -> bool:
    """Wait for it; False if it does not come."""
    end = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.5)
    return True


def ask(url: str, body: bytes | None = None) -> Any:
    """JSON of a page."""
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def up(*options: str) -> None:
    """Start all that compose.yaml has; Grafana where it can be had."""
    environment = {"LOAD_RATE": "12"}
    if not GRAFANA:
        options += "--scale", "grafana=0"
        environment["GRAFANA_IMAGE"] = ROUTER  # or it would be fetched all the same
    compose("up", "--detach", "--no-build", *options, environment=environment)


class Stack:
    """Where to ask the stack."""

    def __init__(self) -> None:
        self.envoy = self._url("envoy", 8080)
        self.prometheus = self._url("prometheus", 9090)

    def query(self, expression: str) -> list[Any]:
        """The samples of a query, now."""
        parameters = urllib.parse.urlencode({"query": expression})
        found: list[Any] = self.of_prometheus(f"query?{parameters}")["result"]
        return found

    def of_prometheus(self, path: str) -> Any:
        """The data that its API answers."""
        return ask(f"{self.prometheus}/api/v1/{path}")["data"]

    @staticmethod
    def _url(service: str, port: int) -> str:
        return f"http://{compose('port', service, str(port)).strip()}"


@pytest.fixture(scope="module")
def stack(image: str) -> Iterator[Stack]:
    assert image == ROUTER
    try:
        up()
        yield Stack()
    finally:
        compose("down", "--timeout", "2", "--volumes")


def test_all_is_up_and_without_rights(stack: Stack) -> None:
    names = compose("ps", "--format", "{{.Name}}").split()

    assert len(names) == 10 + GRAFANA
    for name in names:
        found = inspect(name)
        assert found["State"]["Running"]
        assert found["HostConfig"]["ReadonlyRootfs"]
        assert found["HostConfig"]["CapDrop"] == ["ALL"]
        (uid,) = set(
            re.findall(r"^Uid:(.*)$", docker("exec", name, "cat", "/proc/1/status"), re.MULTILINE)
        )
        assert "0" not in uid.split(), name


def test_traffic_finds_its_cache(stack: Stack) -> None:
    assert until(lambda: "requests," in compose("logs", "--no-log-prefix", "load"))

    log = compose("logs", "--no-log-prefix", "load")
    told = re.search(r"240 requests, (\d+) failed, hit rate ([\d.]+)%", log)
    assert told, log
    assert int(told[1]) == 0, log
    assert float(told[2]) > 80, log


def test_requests_of_ones_own(stack: Stack) -> None:
    question = {"role": "user", "content": "How deep is the lake?"}
    body = json.dumps({"model": "llama-3.1-70b", "messages": [question]}).encode()

    assert ask(f"{stack.envoy}/v1/chat/completions", body)["choices"]


def test_prometheus_sees_everybody(stack: Stack) -> None:
    def everybody() -> bool:
        targets = stack.of_prometheus("targets")["activeTargets"]
        up = sorted(each["labels"]["job"] for each in targets if each["health"] == "up")
        return up == ["envoy", *["replica"] * 4, *["router"] * 2]

    assert until(everybody), stack.of_prometheus("targets")["activeTargets"]


@pytest.mark.parametrize(
    ("panel", "expression"),
    [
        (panel, target["expr"])
        for panel in panels()
        for target in panel["targets"]
        if panel.get("description") != EMPTY_WHILE_WELL
    ],
    ids=lambda value: value["title"] if isinstance(value, dict) else "",
)
def test_panels_have_data(stack: Stack, panel: dict[str, Any], expression: str) -> None:
    asked = expression.replace("$__rate_interval", "1m").replace("$pool", ".*")

    assert until(lambda: bool(stack.query(asked)))
    values = [float(sample["value"][1]) for sample in stack.query(asked)]
    assert all(value == value for value in values), f"{panel['title']}: {values}"


def test_every_alert_is_loaded_and_asks_what_can_be_asked(stack: Stack) -> None:
    def rules() -> list[dict[str, Any]]:
        return [each for group in stack.of_prometheus("rules")["groups"] for each in group["rules"]]

    assert until(lambda: all(rule["health"] != "unknown" for rule in rules()))
    assert {rule["name"]: rule["health"] for rule in rules()} == {
        rule["alert"]: "ok" for rule in alerts()
    }
    critical = [rule for rule in rules() if rule["labels"]["severity"] == "critical"]
    assert {rule["state"] for rule in critical} == {"inactive"}


@pytest.mark.skipif(not GRAFANA, reason="no image of Grafana")
def test_grafana_has_the_dashboard(stack: Stack) -> None:
    address = compose("port", "grafana", "3000").strip()

    def found() -> bool:
        try:
            return bool(ask(f"http://{address}/api/search?query=prefix-extproc"))
        except (urllib.error.URLError, ConnectionError):
            return False

    assert until(found)


def test_more_routers_and_replicas_are_noticed(stack: Stack) -> None:
    up("--no-recreate", "--scale", "router=3", "--scale", "replica=5")

    healthy = 'envoy_cluster_membership_healthy{envoy_cluster_name="%s"} == %d'
    assert until(lambda: bool(stack.query(healthy % ("prefix-extproc", 3))))
    assert until(lambda: bool(stack.query(healthy % ("replicas", 5))))
    assert until(lambda: bool(stack.query('count(up{job="router"} == 1) == 3')))
    assert until(lambda: bool(stack.query("max(prefix_extproc_discovery_replicas) == 5")))


def test_vllm_takes_the_place_of_the_simulated_replicas() -> None:
    whole = json.loads(compose("--profile", "vllm", "config", "--format", "json"))["services"]

    for number in (0, 1):
        service = whole[f"vllm-{number}"]
        assert service["networks"]["models"]["aliases"] == ["replicas"]
        (device,) = service["deploy"]["resources"]["reservations"]["devices"]
        assert device["device_ids"] == [str(number)]
        assert device["capabilities"] == ["gpu"]
    assert "vllm-0" not in json.loads(compose("config", "--format", "json"))["services"]
