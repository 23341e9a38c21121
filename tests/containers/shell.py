"""Docker's command line."""

import json
import os
import subprocess
from typing import Any

from tests.compose.files import FOLDER, default_of, services

ROUTER = os.environ.get("ROUTER_IMAGE", "prefix-extproc:local")

GRAFANA = "GRAFANA_IMAGE" in os.environ or "ENVOY_IMAGE" not in os.environ
"""Whether there is a Grafana: where other images are made by hand, it has to be, too."""

_FILES = (FOLDER / "compose.yaml", FOLDER.parent / "tests/containers/machine-network.yaml")
_PORTS = {"ENVOY_PORT": "0", "PROMETHEUS_PORT": "0", "GRAFANA_PORT": "0"}
_PROJECT = "prefix-extproc-test"


def docker(*arguments: str, environment: dict[str, str] | None = None) -> str:
    """What a command printed on its standard output.

    Raises:
        AssertionError: It failed; with all that it printed.
    """
    done = subprocess.run(
        ["docker", *arguments],
        env=os.environ | (environment or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"docker {' '.join(arguments)}:\n{done.stdout}{done.stderr}"
    return done.stdout


def compose(*arguments: str, environment: dict[str, str] | None = None) -> str:
    """The same, of a stack that is beside whatever else runs here, on free ports."""
    files = [part for file in _FILES for part in ("--file", str(file))]
    return docker(
        "compose", "--project-name", _PROJECT, *files, *arguments,
        environment=_PORTS | (environment or {}),
    )  # fmt: skip


def inspect(container: str) -> dict[str, Any]:
    """All that Docker knows of a container or an image."""
    (found,) = json.loads(docker("inspect", container))
    return dict(found)


def image_of(service: str) -> str:
    """What compose.yaml would run."""
    variable = f"{service.upper()}_IMAGE"
    return os.environ.get(variable) or default_of(services()[service]["image"])
