import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.routing import limit_of, priority_of


@pytest.mark.parametrize(
    ("text", "priority"),
    [
        ("low", -1),
        (" High ", 1),
        ("normal", 0),
        ("-3", -3),
        ("+7", 7),
        ("0", 0),
        ("", 0),
        ("urgent", 0),
        ("1.5", 0),
        ("9" * 10_000, 0),
        ("\udcff", 0),
    ],
)
def test_priorities(text: str, priority: int) -> None:
    assert priority_of(text) == priority


@pytest.mark.parametrize(
    ("most", "limits"), [(0, (0, 0, 0)), (1, (1, 1, 2)), (2, (1, 2, 3)), (9, (5, 9, 14))]
)
def test_limits(most: int, limits: tuple[int, int, int]) -> None:
    assert tuple(limit_of(most, priority) for priority in (-5, 0, 1)) == limits


@given(st.integers(2, 1_000_000), st.integers(-9, 9), st.integers(-9, 9))
def test_the_lower_is_shed_first(most: int, one: int, other: int) -> None:
    if (one > 0) - (one < 0) < (other > 0) - (other < 0):
        assert 0 < limit_of(most, one) < limit_of(most, other)
