"""The names of a pool's keys. All share one hash tag, so a Redis Cluster keeps them together."""

from urllib.parse import quote

LAYOUT = 1
"""Of what is behind the keys: raised when a script would misread what an older one wrote.

Routers of two layouts share nothing, as during a rolling upgrade, instead of misleading each other.
"""


class PoolKeys:
    """Key names of one pool.

    The pool's name is percent-encoded, so no name can close the tag or reach another pool's keys.
    """

    def __init__(self, pool: str) -> None:
        base = f"prefix-extproc:{LAYOUT}:{{{quote(pool, safe='')}}}:".encode()
        self.state = base + b"state"
        self.members = base + b"members"
        self.uses = base + b"uses"
        self.routers = base + b"routers"
        self.incarnations = base + b"incarnations"
        self.board = base + b"board"
        self.written = base + b"written"
        self._open = base + b"open:"
        self._checkpoint = base + b"c:"
        self._home = base + b"h:"

    def open(self, router: str) -> bytes:
        """The open reservations of a router."""
        return self._open + router.encode()

    def checkpoint(self, digest: bytes) -> bytes:
        """Who has seen a checkpoint."""
        return self._checkpoint + digest

    def home(self, digest: bytes) -> bytes:
        """The sticky entry of ``prefix_aware``, or who served a session last."""
        return self._home + digest
