"""Fixtures for all rooms."""

from collections.abc import Iterator

import pytest

from tests.valkey import Valkey


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("drills", "faults under traffic (tests/faults)")
    group.addoption("--drill-rate", type=float, default=20.0, help="requests per second")
    group.addoption(
        "--drill-seconds", type=float, default=1.0, help="before, during and after a fault, each"
    )


@pytest.fixture(scope="session")
def shared_valkey() -> Iterator[Valkey]:
    """One server for all tests that do not harm it."""
    server = Valkey()
    server.start()
    yield server
    server.remove()


@pytest.fixture
def valkey() -> Iterator[Valkey]:
    """A server of the test's own, to stop and to restart."""
    server = Valkey()
    server.start()
    yield server
    server.remove()
