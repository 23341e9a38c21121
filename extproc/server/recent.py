"""A bounded table."""

from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """What was made for the last so many keys; the oldest is forgotten for a new one.

    Args:
        most: How many to keep.
        forgotten: Told each value that is forgotten.
    """

    def __init__(self, most: int, forgotten: Callable[[V], None] = lambda _value: None) -> None:
        self._most = most
        self._forgotten = forgotten
        self._values: dict[K, V] = {}

    def get(self, key: K, make: Callable[[], V]) -> V:
        """The value of a key, made at its first use."""
        value = self._values.get(key)
        if value is None:
            if len(self._values) >= self._most:
                self._forgotten(self._values.pop(next(iter(self._values))))
            value = self._values[key] = make()
        return value

    def find(self, key: K) -> V | None:
        """The value of a key, if it was made."""
        return self._values.get(key)

    def __iter__(self) -> Iterator[V]:
        """All values that are kept."""
        return iter(self._values.values())
