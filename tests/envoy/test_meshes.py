"""The manifests for meshes: what becomes of them is valid for Envoy, and check is content."""

import json
import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from extproc.check.checking import check
from extproc.settings import ENV_PREFIX, Settings
from tests.check.envoy import refusal
from tests.envoy.meshes import envoy_gateway, istio

FOLDER = Path(__file__).parents[2] / "envoy"
STANDALONE = [
    "kubernetes/envoy/envoy.yaml",
    "consul/envoy.yaml",
    "amazon-ecs/envoy.yaml",
    "standalone.yaml",
]
MESHES = ["istio", "envoy-gateway", "kgateway", "consul", "cilium", "amazon-ecs", "kubernetes"]


def resources(path: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / path).read_text()))


def judged(config: dict[str, Any], folder: Path) -> tuple[str, list[str]]:
    """What Envoy has against a configuration, and what check has."""
    path = folder / "envoy.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    found = check({"envoy.yaml": path.read_text()})
    assert found.filters == 1
    return refusal(path), [f"{each.rule}: {each.message}" for each in found.findings]


@pytest.mark.parametrize(
    ("name", "context"), [("gateway", "GATEWAY"), ("sidecar", "SIDECAR_OUTBOUND")]
)
def test_istio(name: str, context: str, tmp_path: Path) -> None:
    config = istio.generated(resources(f"istio/{name}.yaml"), context)

    assert judged(config, tmp_path) == ("", [])
    filters = config["static_resources"]["listeners"][0]["filter_chains"][0]["filters"]
    names = [each["name"] for each in filters[0]["typed_config"]["http_filters"]]
    assert [each.rpartition(".")[2] for each in names] == ["buffer", "ext_proc", "router"]


def test_envoy_gateway(tmp_path: Path) -> None:
    config = envoy_gateway.generated(resources("envoy-gateway/policies.yaml"))

    assert judged(config, tmp_path) == ("", [])


@pytest.mark.parametrize("path", STANDALONE)
def test_envoys_of_our_own(path: str) -> None:
    assert refusal(FOLDER / path) == ""


@pytest.mark.parametrize("mesh", MESHES)
def test_every_mesh_has_steps_and_says_what_was_tried(mesh: str) -> None:
    text = (FOLDER / mesh / "README.md").read_text()

    assert "## Steps" in text
    assert "## What was tried" in text
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if "://" not in target:
            assert (FOLDER / mesh / target).exists(), target


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("kustomization.yaml")), ids=str)
def test_kustomizations_name_files_that_are_there(path: Path) -> None:
    content = yaml.safe_load(path.read_text())
    generated = [name for each in content.get("configMapGenerator", []) for name in each["files"]]

    for name in [*content["resources"], *generated]:
        assert (path.parent / name).is_file()


@pytest.mark.parametrize(
    "path", sorted((FOLDER / "kubernetes").glob("*/*.yaml")), ids=lambda path: path.name
)
def test_kubernetes_own_resources_follow_its_schemas(path: Path) -> None:
    for resource in yaml.safe_load_all(path.read_text()):
        if (
            resource.get("apiVersion", "kustomize").startswith("kustomize")
            or "kind" not in resource
        ):
            continue
        kubernetes_validate.validate(resource, "1.37", strict=True)


def test_tasks_and_pods_name_settings_that_exist() -> None:
    known = {ENV_PREFIX + name.upper() for name in Settings.model_fields}
    task = json.loads((FOLDER / "amazon-ecs" / "router-task.json").read_text())
    container = task["containerDefinitions"][0]
    pod = resources("kubernetes/router/deployment.yaml")[0]["spec"]["template"]["spec"]

    used = [each["name"] for each in container["environment"] + container["secrets"]]
    used += [each["name"] for each in pod["containers"][0]["env"]]

    assert len(used) > 6
    assert set(used) <= known
