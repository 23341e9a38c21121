"""The router's image: no root, nothing to write to, a health check, and a clean end."""

import time
import uuid
from collections.abc import Iterator

import pytest

from tests.containers.shell import docker, inspect

pytestmark = [pytest.mark.containers, pytest.mark.timeout(300)]

LIMIT_S = 60


@pytest.fixture
def router(image: str) -> Iterator[str]:
    """A container without rights, whose root file system nobody can write to."""
    name = f"prefix-extproc-test-{uuid.uuid4().hex[:8]}"
    hardened = ["--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges:true"]
    docker(
        "run",
        "--detach",
        "--name",
        name,
        "--network",
        "none",
        *hardened,
        "--health-interval",
        "1s",
        image,
    )
    yield name
    docker("rm", "--force", name)


def until_it_is(name: str, health: str) -> None:
    end = time.monotonic() + LIMIT_S
    while (state := inspect(name)["State"])["Health"]["Status"] != health:
        assert state["Running"], docker("logs", name)
        assert time.monotonic() < end, state["Health"]
        time.sleep(0.2)


def test_it_serves_without_rights_and_tells_its_health_by_grpc(router: str) -> None:
    until_it_is(router, "healthy")

    assert docker("exec", router, "prefix-extproc", "health").split()[-1] == "SERVING"
    script = "import os; print(os.getuid(), os.getgid(), open('/proc/1/cmdline').read())"
    uid, gid, command = docker("exec", router, "python3", "-c", script).split(maxsplit=2)
    assert (uid, gid) == ("65532", "65532")
    assert command.strip("\0\n").endswith("prefix-extproc\0serve")


def test_its_health_is_that_of_the_router(router: str) -> None:
    until_it_is(router, "healthy")
    nobody = ["prefix-extproc", "health", "--address", "127.0.0.1:1", "--timeout", "1"]

    with pytest.raises(AssertionError, match="no answer"):
        docker("exec", router, *nobody)


def test_sigterm_ends_it_in_order(router: str) -> None:
    until_it_is(router, "healthy")

    docker("stop", "--time", "50", router)

    state = inspect(router)["State"]
    assert state["ExitCode"] == 0, docker("logs", router)
    assert not state["OOMKilled"]


def test_nothing_of_the_build_is_left(image: str) -> None:
    tools = "pip", "setuptools", "pytest", "matplotlib"
    script = f"from importlib.util import find_spec; print([*filter(find_spec, {tools})])"
    python = ["--entrypoint", "/opt/prefix-extproc/bin/python"]

    assert docker("run", "--rm", "--network", "none", *python, image, "-c", script) == "[]\n"
