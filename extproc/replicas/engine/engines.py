"""The engines of a pool's replicas as all its routers know them, and what follows for a choice."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import NamedTuple

from extproc.replicas.engine.report import Report, report_of
from extproc.replicas.health import Noticeboard
from extproc.routing import Policy, Standing, Standings
from extproc.routing.standing import MOST_QUEUED

TOPIC = "engine/"
"""What the topics of engines' reports begin with; the replica's address follows."""

ADAPTER_TOKENS = 4096
"""What it costs, in queued tokens, to load a LoRA adapter that another replica has loaded."""


class EnginePolicy(NamedTuple):
    """How a pool's engines are asked, and what their requests weigh.

    Attributes:
        path: Of their metrics; empty for not asking.
        interval_s: Seconds from one look to the next.
        decode_tokens: Cost of one request in flight, in queued tokens.
        shadow: Whether the pool has a second ledger, of shadow mode.
        events_port: Of their cache events; 0 for not following them.
        replay_port: Where missed events can be had again; 0 for nowhere.
    """

    path: str = ""
    interval_s: int = 2
    decode_tokens: int = 64
    shadow: bool = False
    events_port: int = 0
    replay_port: int = 0


class Engines:
    """A ``View`` of the replicas: how busy their engines are with what the routers did not send.

    Args:
        pool: The pool's name.
        board: Where routers tell each other.

    Attributes:
        decode_tokens: Cost of one request in flight, in queued tokens.
    """

    def __init__(self, pool: str, board: Noticeboard) -> None:
        self.decode_tokens = EnginePolicy().decode_tokens
        self._pool = pool
        self._board = board
        self._notices: Mapping[str, str] = {}
        self._texts: dict[str, str] = {}
        self._reports: dict[str, Report] = {}
        self._adapters: frozenset[str] = frozenset()
        self._memory_tokens = 0
        self._drain_rate = 0
        self._least_rate = 0
        self._policies: tuple[Policy, Policy] | None = None

    @property
    def reports(self) -> Mapping[str, Report]:
        """Replica to the last report of its engine, where there is one that is not too old."""
        self._hear()
        return self._reports

    def standings(self, addresses: Sequence[str], model: str) -> Standings:
        """What the engines have queued of others' requests, and who would have to load an adapter.

        Args:
            addresses: The candidates.
            model: The request's model, which may be the name of an adapter.
        """
        self._hear()
        if not self._reports:
            return {}
        adapter = model in self._adapters
        found = {}
        for address in addresses:
            report = self._reports.get(address, _SILENT)
            queued = report.foreign_waiting * report.request_tokens + self.decode_tokens * (
                report.foreign_waiting + report.foreign_running
            )
            if adapter and model not in (report.adapters or ()):
                queued += ADAPTER_TOKENS
            if queued:
                found[address] = Standing(queued_tokens=min(queued, MOST_QUEUED))
        return found

    def applied(self, policy: Policy) -> Policy:
        """The policy with what the engines tell of their caches and of their speed.

        A size that the pool's settings name stays. The rate at which queues were seen to drain is
        better evidence than how long requests take.
        """
        self._hear()
        if self._policies is None or self._policies[0] is not policy:
            rate = self._drain_rate or max(policy.prefill_rate, self._least_rate)
            cache = policy.cache_tokens or self._memory_tokens
            self._policies = policy, replace(policy, prefill_rate=rate, cache_tokens=cache)
        return self._policies[1]

    def _hear(self) -> None:
        notices = self._board.board(self._pool)
        if notices is self._notices:
            return
        self._notices = notices
        texts = {
            topic.removeprefix(TOPIC): text
            for topic, text in notices.items()
            if topic.startswith(TOPIC)
        }
        if texts == self._texts:
            return
        self._reports = {
            address: self._reports[address] if self._texts.get(address) == text else report_of(text)
            for address, text in texts.items()
        }
        self._texts = texts
        reports = self._reports.values()
        self._adapters = frozenset(name for each in reports for name in each.adapters or ())
        self._memory_tokens = min(_told(each.memory_tokens for each in reports), default=0)
        self._drain_rate = _middle(_told(each.drain_rate for each in reports))
        self._least_rate = _middle(_told(each.least_rate for each in reports))
        self._policies = None


_SILENT = Report()


def _told(numbers: Iterable[int]) -> list[int]:
    return [number for number in numbers if number]


def _middle(numbers: Sequence[int]) -> int:
    return round(median(numbers)) if numbers else 0
