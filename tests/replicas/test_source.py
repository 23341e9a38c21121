from typing import Any

import pytest

from extproc.replicas import Candidates, Service, static, subset

KEY = "x-gateway-destination-endpoint-subset"


def hint(value: Any) -> dict[str, dict[str, Any]]:
    return {"envoy.lb.subset_hint": {KEY: value}}


def test_a_static_list_is_enforced_at_once_and_learns_nothing() -> None:
    source = static(("10.0.0.1:80", "10.0.0.2:80"))

    source.served(Service("10.0.0.9:80", 1, "10.0.0.1:80", answered=True))

    assert source.candidates() == Candidates(("10.0.0.1:80", "10.0.0.2:80"), matched_only=False)


@pytest.mark.parametrize(
    ("value", "addresses"),
    [
        ("10.0.0.2:8080,10.0.0.3:8080", ("10.0.0.2:8080", "10.0.0.3:8080")),
        ("  10.0.0.2:8080 ,  ,  10.0.0.3:8080  ", ("10.0.0.2:8080", "10.0.0.3:8080")),
        (["10.0.0.2:8080", " [0::1]:80 "], ("10.0.0.2:8080", "[::1]:80")),
        (["10.0.0.2:8080", "10.0.0.2:8080"], ("10.0.0.2:8080",)),
        (["not an address", 7.0, None], ()),
        ("", ()),
        ([], ()),
        (7.0, ()),
    ],
)
def test_a_subset_is_a_list_or_a_text(value: Any, addresses: tuple[str, ...]) -> None:
    source = subset(hint(value))

    assert source is not None
    assert source.candidates() == Candidates(addresses)


@pytest.mark.parametrize(
    "metadata", [{}, {"envoy.lb": {KEY: "10.0.0.2:1"}}, {"envoy.lb.subset_hint": {}}, hint(None)]
)
def test_no_subset(metadata: dict[str, dict[str, Any]]) -> None:
    assert subset(metadata) is None
