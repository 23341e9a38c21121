"""The worked example of how-it-decides.md, computed by the strategy itself."""

import re

from extproc.prompt.checkpoints import checkpoint_positions
from extproc.routing import Policy, Question, Reason, choose
from tests.docs.pages import ROOT

TEXT = (ROOT / "docs" / "how-it-decides.md").read_text(encoding="utf-8")
BYTES, TOKENS = 8400, 2100


def rows() -> list[list[str]]:
    _, _, rest = TEXT.partition("<!-- example:begin -->")
    lines = rest.partition("<!-- example:end -->")[0].strip().splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_costs_are_those_of_the_strategy() -> None:
    matched, pending, in_flight = ([int(row[column]) for row in rows()] for column in (1, 2, 3))
    question = Question(Policy(), in_flight, pending, matched, TOKENS)

    choice = choose(question)

    assert [cost / 1000 for cost in choice.costs] == [float(row[5]) for row in rows()]
    assert choice.ranked[0] == 1
    assert choice.reason is Reason.MATCHED
    for row in rows():
        uncached, factor = TOKENS - int(row[1]), Policy().decode_tokens
        assert row[4] == f"{row[2]} + 2.5 x {uncached} + {factor} x {row[3]}"

    busier = choose(question._replace(pending=[0, 2400, 0]))
    assert busier.costs[1] == 2_850_000
    assert "its cost would be 2,850" in TEXT
    assert busier.ranked[0] == 0
    assert busier.reason is Reason.SPILLED


def test_the_checkpoints_are_where_the_page_says() -> None:
    assert checkpoint_positions(BYTES)[-1] == 8192
    assert BYTES / 4 == TOKENS
    for size, count in re.findall(r"(\d+) for (\d+) kB", TEXT):
        expected = {"4": 4096, "32": 32_768, "400": 400_000}[count]
        assert len(checkpoint_positions(expected)) == int(size)
    assert len(re.findall(r"(\d+) for (\d+) kB", TEXT)) == 3


def test_the_page_has_the_default_weights() -> None:
    policy = Policy()
    uncached, decode = f"{policy.uncached_milli / 1000:g}", policy.decode_tokens

    assert set(re.findall(r"([\d.]+) x (?:uncached|\(tokens)", TEXT)) == {uncached}
    assert set(re.findall(r"(\d+) x in flight", TEXT)) == {str(decode)}
    [cost] = re.findall(r"matched=2048;pending=0;in_flight=1;cost=([\d.]+)", TEXT)
    assert float(cost) == policy.uncached_milli / 1000 * 52 + decode
