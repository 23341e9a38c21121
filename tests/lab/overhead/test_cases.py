import json

import pytest

from extproc.lab.overhead.cases import REPEATED, UNIQUE, Case, all_cases, body_parts
from extproc.lab.overhead.client import SERIAL


def body(case: Case, serial: int, seed: int = 1) -> bytes:
    before, after = body_parts(case, seed)
    return before + b"%0*d" % (SERIAL, serial) + after


def prompt(body: bytes) -> str:
    content = json.loads(body)["messages"][0]["content"]
    assert isinstance(content, str)
    return content


@pytest.mark.parametrize("prefix", [UNIQUE, REPEATED])
@pytest.mark.parametrize("size_kb", [1, 2, 3, 64, 512])
def test_bodies_are_chats_of_exactly_their_size(prefix: str, size_kb: int) -> None:
    for seed in range(5):
        whole = body(Case(size_kb, prefix, 1), 7, seed)
        assert len(whole) == size_kb * 1000
        assert len(prompt(whole)) > 0.85 * len(whole)


def test_unique_prompts_differ_at_once_and_repeated_ones_at_seven_eighths() -> None:
    for prefix, least, most in ((UNIQUE, 0.0, 0.01), (REPEATED, 0.85, 0.89)):
        first, second = (prompt(body(Case(64, prefix, 1), serial)) for serial in (1, 2))
        same = next(
            at for at, pair in enumerate(zip(first, second, strict=True)) if len({*pair}) > 1
        )
        assert least <= same / len(first) <= most


def test_the_text_is_the_seeds() -> None:
    case = Case(2, UNIQUE, 1)
    assert body(case, 1) == body(case, 1)
    assert body(case, 1) != body(case, 1, seed=2)


def test_long_requests_are_fewer_but_every_client_has_one() -> None:
    assert Case(64, UNIQUE, 1).requests(600) == 300
    assert Case(2, UNIQUE, 1).requests(600) > 550
    assert Case(512, UNIQUE, 32).requests(100) == 32
    assert Case(512, UNIQUE, 1).requests(1) == 2


def test_all_cases_are_every_combination() -> None:
    cases = all_cases((2, 64), (UNIQUE, REPEATED), (1, 32))
    assert len(set(cases)) == len(cases) == 8
    assert cases[0].name == "2 kB, unique, 1 at a time"
