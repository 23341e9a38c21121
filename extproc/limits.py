"""A limit that was reached: counted always, logged once a minute."""

import time
from collections import Counter
from collections.abc import Callable

import structlog

_log = structlog.get_logger(__name__)

QUIET_S = 60.0
"""Seconds for which a limit that was logged is not logged again."""


class Limits:
    """The limits of one process, by the setting that holds each.

    Args:
        clock: Seconds that only grow.

    Attributes:
        reached: Setting to how often something was held back because of it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.reached: Counter[str] = Counter()
        self._logged: dict[str, float] = {}

    def hit(self, setting: str, effect: str) -> None:
        """Count that a limit held something back.

        Args:
            setting: The flag or key that an operator would raise.
            effect: What becomes of requests, for the log line.
        """
        self.reached[setting] += 1
        now = self._clock()
        if now - self._logged.get(setting, -QUIET_S) >= QUIET_S:
            self._logged[setting] = now
            _log.warning("limit reached", limit=setting, effect=effect, times=self.reached[setting])
