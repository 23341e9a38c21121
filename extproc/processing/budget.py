"""Bytes that all streams together may keep for their choices."""


class Budget:
    """A sum that is shared.

    Args:
        limit: Most bytes at once; 0 for no limit.

    Attributes:
        used: Bytes that are taken now.
        denied: How often there was no room.
    """

    __slots__ = ("_limit", "denied", "used")

    def __init__(self, limit: int = 0) -> None:
        self._limit = limit
        self.used = 0
        self.denied = 0

    def take(self, size: int) -> bool:
        """Take bytes if there is room for all of them."""
        if self._limit and self.used + size > self._limit:
            self.denied += 1
            return False
        self.used += size
        return True

    def give_back(self, size: int) -> None:
        """Let go of bytes that were taken."""
        self.used -= size
