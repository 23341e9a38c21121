"""A pool's prefill rate, learned by all its routers together.

Each puts its evidence on the pool's notice board, and adds what the others' say: so they weigh
queues alike, and a new router begins with what is known.
"""

from collections.abc import Iterator, Mapping

from extproc.replicas.health import Noticeboard
from extproc.routing import Evidence, LearnedRate, Policy, as_text, from_text

TOPIC = "prefill/"
"""What the topics of our notices begin with; the router's name follows."""

_TTL_S = 600


class PoolRate:
    """What one router applies and observes.

    Args:
        pool: The pool's name.
        guess: Tokens per second to begin with.
        router: A name that no other router has.
        board: Where routers tell each other.
    """

    def __init__(self, pool: str, guess: int, router: str, board: Noticeboard) -> None:
        self._pool = pool
        self._board = board
        self._topic = f"{TOPIC}{router}/{guess}"
        self._learned = LearnedRate(guess)
        self._notices: Mapping[str, str] = {}

    @property
    def tokens_per_second(self) -> int:
        """The rate."""
        return self._learned.tokens_per_second

    def applied(self, policy: Policy) -> Policy:
        """The policy with this rate."""
        notices = self._board.board(self._pool)
        if notices is not self._notices:
            self._notices = notices
            self._learned.hear(_others(notices, self._topic))
        return self._learned.applied(policy)

    def observe(self, uncached_tokens: int, seconds: float) -> None:
        """Take in a request that was served by the first choice."""
        if self._learned.observe(uncached_tokens, seconds):
            text = as_text(self._learned.evidence)
            self._board.post(self._pool, self._topic, text, ttl_s=_TTL_S)


def _others(notices: Mapping[str, str], own: str) -> Iterator[Evidence]:
    for topic, text in notices.items():
        if topic.startswith(TOPIC) and topic != own:
            evidence = from_text(text)
            if evidence is not None:
                yield evidence
