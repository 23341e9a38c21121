"""The image that compose/Dockerfile makes."""

import shutil
import subprocess

import pytest

from tests.containers.shell import ROUTER, compose, inspect
from tests.faults.conftest import drill, load

__all__ = ["drill", "image", "load"]


_SIZE = pytest.StashKey[int]()


@pytest.fixture(scope="session")
def image(pytestconfig: pytest.Config) -> str:
    """Its name, once it is built."""
    if (
        not shutil.which("docker")
        or subprocess.run(["docker", "info"], capture_output=True, check=False).returncode
    ):
        pytest.skip("Docker does not run here")
    compose("build", "router")
    pytestconfig.stash[_SIZE] = inspect(ROUTER)["Size"]
    return ROUTER


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if size := config.stash.get(_SIZE, 0):
        terminalreporter.write_line(
            f"the image {ROUTER} has {size / 1e6:.0f} MB, its base included"
        )
