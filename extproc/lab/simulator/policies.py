"""What routes in a simulation."""

from collections.abc import Sequence
from typing import Protocol

from extproc.lab.simulator.calls import Call


class Router(Protocol):
    """Chooses replicas, and hears what became of its choices."""

    def choose(self, call: Call, members: Sequence[int]) -> int:
        """The number of the replica, one of ``members``, that gets a call."""

    def first_token(self, call: Call) -> None:
        """A call's first token came."""

    def ended(self, call: Call) -> None:
        """A call's response ended."""

    def left(self, replica: int) -> None:
        """A replica is no longer a member; what it held is lost."""
