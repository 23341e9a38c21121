"""The tokenizer finds metrics and labels, and takes nothing else for one."""

import pytest

from tests.compose.promql import names


@pytest.mark.parametrize(
    ("expression", "metrics", "labels"),
    [
        ("up", {"up"}, set()),
        ('up{job="a_b", pod!~"c{d}"} == bool 0', {"up"}, {"job", "pod"}),
        ("sum by (a, b) (rate(x_total[5m] offset 1h))", {"x_total"}, {"a", "b"}),
        ("sum(rate(x_total[$__rate_interval])) by (a)", {"x_total"}, {"a"}),
        ("histogram_quantile(0.9, sum by (le) (rate(v:s_bucket[1m])))", {"v:s_bucket"}, {"le"}),
        ("x / on (a) group_left (b) y or 1e3 # and z", {"x", "y"}, {"a", "b"}),
        ("min by (a) (x) == 0 and y unless z > 5", {"x", "y", "z"}, {"a"}),
    ],
)
def test_names(expression: str, metrics: set[str], labels: set[str]) -> None:
    found = names(expression)

    assert found.metrics == metrics
    assert found.labels == labels
