"""Addresses as text."""

import pytest

from extproc.address import join_host_port, split_host_port


@pytest.mark.parametrize(
    ("text", "parts"),
    [("h:1", ("h", 1)), ("[::1]:0", ("::1", 0)), ("0.0.0.0:65535", ("0.0.0.0", 65535))],
)
def test_there_and_back(text: str, parts: tuple[str, int]) -> None:
    assert split_host_port(text) == parts
    assert join_host_port(*parts) == text


@pytest.mark.parametrize(
    "text", ["", "h", ":1", "h:", "::1:1", "h:x", "h:65536", "h:-1", "h:\u0661"]
)
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"write host:port|the port must be"):
        split_host_port(text)
