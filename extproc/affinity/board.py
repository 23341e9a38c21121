"""A pool's notice board: short texts that every router should know for a while."""

from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from typing import NamedTuple

MOST_TOPICS = 4096
"""Topics of a pool beyond which nothing new is put up: some for each of a thousand replicas."""


class Notice(NamedTuple):
    """One text on the board.

    Attributes:
        topic: What it is about; there is one notice for each topic.
        text: What it says; empty where it was taken down.
        until_s: When it is over, by the board's clock.
    """

    topic: str
    text: str
    until_s: float


class Board:
    """What a router knows of its pool's board: what all routers put up, and its own news.

    Args:
        clock: Seconds, from any start.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._shared: dict[str, Notice] = {}
        self._own: dict[str, Notice] = {}
        self._told: list[Notice] = []
        self._view: Mapping[str, str] = {}
        self._view_ends_s = float("inf")

    def post(self, topic: str, text: str, ttl_s: float) -> Notice | None:
        """Put up a text, or take a topic's text down with an empty one.

        Returns:
            What other routers are to be told; None where the board is full.
        """
        if text and topic not in self._view and len(self._view) >= MOST_TOPICS:
            return None
        notice = Notice(topic, text, self._clock() + ttl_s)
        self._own[topic] = notice
        self._refresh()
        return notice

    def told(self, notice: Notice) -> None:
        """Take in that all routers can know of a notice: what they say next is newer than it."""
        self._told.append(notice)

    def before_hearing(self) -> list[Notice]:
        """What was told up to now; to be given back to ``heard``."""
        told, self._told = self._told, []
        return told

    def heard(self, notices: Iterable[tuple[str, str, float]], told: Iterable[Notice]) -> None:
        """Take in all that is on the shared board.

        Args:
            notices: Topic, text, and seconds for which it still holds.
            told: What ``before_hearing`` said before the board was asked.
        """
        now_s = self._clock()
        self._shared = {
            topic: Notice(topic, text, now_s + left_s) for topic, text, left_s in notices
        }
        for notice in told:
            if self._own.get(notice.topic) is notice:
                del self._own[notice.topic]
        self._refresh()

    def read(self) -> Mapping[str, str]:
        """Topic to text. The same mapping again while nothing changes."""
        if self._clock() >= self._view_ends_s:
            self._refresh()
        return self._view

    def _refresh(self) -> None:
        now_s = self._clock()
        for notices in (self._shared, self._own):
            for topic in [each.topic for each in notices.values() if each.until_s <= now_s]:
                del notices[topic]
        whole = {**self._shared, **self._own}
        self._view_ends_s = min((each.until_s for each in whole.values()), default=float("inf"))
        view = {topic: notice.text for topic, notice in whole.items() if notice.text}
        if view != self._view:
            self._view = view
