"""Bytes that all sessions together may keep."""

import pytest

from extproc.processing import Choice, DecisionDue, Session
from extproc.processing.budget import Budget
from tests.processing.messages import (
    BUFFERED,
    DUPLEX,
    PARTIAL,
    STREAMED,
    only,
    replies,
    request_body,
    request_headers,
)


def opened(budget: Budget, mode: int) -> Session:
    session = Session(readable=lambda _head: True, budget=budget)
    session.receive(request_headers(mode, no_wait=True))
    return session


@pytest.mark.parametrize("mode", [STREAMED, BUFFERED, PARTIAL, DUPLEX])
def test_a_body_without_room_is_decided_by_what_there_is(mode: int) -> None:
    budget = Budget(100)
    assert budget.take(60)

    session = opened(budget, mode)
    due = only(session.receive(request_body(b"x" * 41, end=True)), DecisionDue)

    assert (due.body, due.complete) == (b"", False)
    assert replies(session.decide(Choice()))
    assert (budget.used, budget.denied) == (60, 1)


@pytest.mark.parametrize("mode", [STREAMED, DUPLEX])
def test_a_body_is_cut_where_the_room_ends(mode: int) -> None:
    budget = Budget(100)
    session = opened(budget, mode)
    assert not [e for e in session.receive(request_body(b"a" * 60)) if isinstance(e, DecisionDue)]
    assert budget.used == 60

    due = only(session.receive(request_body(b"b" * 60)), DecisionDue)

    assert (due.body, due.complete) == (b"a" * 60, False)
    assert budget.used == 0


def test_who_leaves_gives_back_what_it_kept() -> None:
    budget = Budget(1000)
    sessions = [opened(budget, STREAMED) for _ in range(10)]
    for session in sessions:
        session.receive(request_body(b"x" * 50))
    assert budget.used == 500
    for session in sessions:
        session.abandon()
        session.abandon()
    assert (budget.used, budget.denied) == (0, 0)
