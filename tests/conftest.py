"""Fixtures for all rooms."""

from collections.abc import Iterator

import pytest

from tests.valkey import Valkey


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
