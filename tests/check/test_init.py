"""``prefix-extproc init``: what it writes is right, once, and leaves the rest alone."""

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from extproc import cli
from extproc.check.checking import check
from tests.check.envoy import refusal
from tests.check.test_rules import EXT_PROC, camel_cased

PLAIN = Path(__file__).with_name("plain.yaml")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.app, ["init", *arguments])


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    path = tmp_path / "envoy.yaml"
    path.write_text(PLAIN.read_text())
    return path


def test_the_result_is_clean_valid_and_final(plain: Path) -> None:
    result = run(str(plain), "--cluster", "models", "--write")

    assert result.exit_code == 0, result.output
    text = plain.read_text()
    assert check({"f": text}) == ([], 1)
    assert refusal(plain) == ""
    again = run(str(plain), "--cluster", "models", "--write")
    assert again.stdout == ""
    assert "nothing to change" in again.stderr
    assert plain.read_text() == text


def test_every_line_and_comment_stays_but_the_ignored_policy(plain: Path) -> None:
    run(str(plain), "--cluster", "models", "--write")

    lines = iter(plain.read_text().splitlines())
    for line in PLAIN.read_text().splitlines():
        if "lb_policy: ROUND_ROBIN" not in line:  # it is the fallback policy now
            assert line in lines, "lost, or out of order"
    assert "round_robin.v3.RoundRobin" in plain.read_text()


def test_without_write_only_the_diff_is_shown(plain: Path) -> None:
    result = run(str(plain), "--cluster", "models")

    assert result.exit_code == 0
    assert result.stdout.startswith(f"--- {plain}\n+++ {plain}\n@@")
    assert "+          - name: envoy.filters.http.ext_proc\n" in result.stdout
    assert "--write" in result.stderr
    assert plain.read_text() == PLAIN.read_text()


def test_other_routes_are_kept_from_the_router_and_upgrades_from_the_buffer(plain: Path) -> None:
    run(str(plain), "--cluster", "models", "--write")

    resources = yaml.safe_load(plain.read_text())["static_resources"]
    manager = resources["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    web, upgrade, rest = manager["route_config"]["virtual_hosts"][0]["routes"]
    off = web["typed_per_filter_config"]
    assert [each["disabled"] for each in off.values()] == [True, True]
    assert web["route"] == {"cluster": "web"}
    assert upgrade["match"]["headers"] == [{"name": "upgrade", "present_match": True}]
    assert list(upgrade["typed_per_filter_config"]) == ["envoy.filters.http.buffer"]
    assert upgrade["route"] == rest["route"]
    assert "typed_per_filter_config" not in rest


def test_routers_and_mode(plain: Path) -> None:
    addresses = ["--router", "10.0.0.1:9002", "--router", "[::1]:9004"]
    run(str(plain), "--cluster", "models", *addresses, "--mode", "shadow", "--write")

    cluster = yaml.safe_load(plain.read_text())["static_resources"]["clusters"][-1]
    assert cluster["type"] == "STATIC"
    endpoints = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
    assert [
        tuple(each["endpoint"]["address"]["socket_address"].values()) for each in endpoints
    ] == [("10.0.0.1", 9002), ("::1", 9004)]
    assert "value: shadow" in plain.read_text()
    assert refusal(plain) == ""


def test_a_router_by_name_is_resolved(plain: Path) -> None:
    run(str(plain), "--cluster", "models", "--router", "routers.local:9002", "--write")

    cluster = yaml.safe_load(plain.read_text())["static_resources"]["clusters"][-1]
    assert cluster["type"] == "STRICT_DNS"
    assert refusal(plain) == ""


def test_another_ext_proc_filter_stays_first(plain: Path) -> None:
    other = f"""\
          - name: envoy.filters.http.ext_proc
            typed_config:
              "@type": {EXT_PROC}.ExternalProcessor
              grpc_service: {{envoy_grpc: {{cluster_name: web}}}}
"""
    place = "          # Nothing special.\n"
    plain.write_text(PLAIN.read_text().replace(place, other + place))

    run(str(plain), "--cluster", "models", "--write")

    assert other in plain.read_text()
    assert "          - name: prefix-extproc\n" in plain.read_text()
    assert check({"f": plain.read_text()}) == ([], 1)
    assert refusal(plain) == ""


@pytest.mark.parametrize("indent", [None, 2], ids=["one line", "indented"])
def test_json_in_camel_case(indent: int | None, tmp_path: Path) -> None:
    path = tmp_path / "envoy.json"
    path.write_text(json.dumps(camel_cased(yaml.safe_load(PLAIN.read_text())), indent=indent))

    result = run(str(path), "--cluster", "models", "--write")

    assert result.exit_code == 0, result.output
    assert check({"f": path.read_text()}) == ([], 1)
    assert refusal(path) == ""
    assert "_config" not in path.read_text(), "the file's own spelling"


def test_listeners_and_clusters_in_files_of_their_own(tmp_path: Path) -> None:
    resources = yaml.safe_load(PLAIN.read_text())["static_resources"]
    paths = [tmp_path / "lds.yaml", tmp_path / "cds.yaml"]
    for path, kind in zip(paths, ["listeners", "clusters"], strict=True):
        path.write_text(yaml.safe_dump({"resources": resources[kind]}))

    result = run(*map(str, paths), "--cluster", "models", "--write")

    assert result.exit_code == 0, result.output
    assert "prefix-extproc" in paths[1].read_text()
    assert check({path.name: path.read_text() for path in paths}) == ([], 1)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "name the cluster of the model servers by --cluster; there are models, web"),
        (["--cluster", "modls"], "no cluster modls in these files: did you mean models?"),
        (["--cluster", "models", "--router", "9002"], "--router: write host:port"),
    ],
)
def test_what_it_cannot_do_is_status_2(arguments: list[str], reason: str, plain: Path) -> None:
    result = run(str(plain), *arguments)

    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {reason}")


def test_clusters_alone_are_not_enough(tmp_path: Path) -> None:
    path = tmp_path / "cds.yaml"
    resources = yaml.safe_load(PLAIN.read_text())["static_resources"]
    path.write_text(yaml.safe_dump({"resources": resources["clusters"]}))

    result = run(str(path), "--cluster", "models")

    assert result.exit_code == 2
    assert "no route to models in these files" in result.stderr


def test_line_ends_of_windows_stay(plain: Path) -> None:
    plain.write_bytes(PLAIN.read_bytes().replace(b"\n", b"\r\n"))

    run(str(plain), "--cluster", "models", "--write")

    written = plain.read_bytes()
    assert written.count(b"\r\n") == written.count(b"\n") > PLAIN.read_text().count("\n")
