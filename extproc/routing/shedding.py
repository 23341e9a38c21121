"""Who is shed first where there is too much to do."""

import re

_LEVELS = {"low": -1, "normal": 0, "high": 1}
_NUMBER = re.compile(r"[+-]?[0-9]{1,9}")


def priority_of(text: str) -> int:
    """The priority that a request claims: below 0 is shed first, above 0 last.

    Args:
        text: ``low``, ``normal``, ``high`` or an integer; anything else counts as ``normal``.
    """
    word = text.strip().lower()
    if word in _LEVELS:
        return _LEVELS[word]
    return int(word) if _NUMBER.fullmatch(word) else 0


def limit_of(most: int, priority: int) -> int:
    """Requests in flight at which a replica is full for a request of a priority.

    Half as many below 0 and half as many again above it: while low ones are shed, normal ones still
    find room, and while these are shed, high ones do.

    Args:
        most: The limit for priority 0; 0 for none.
        priority: The request's.
    """
    if priority < 0:
        return (most + 1) // 2
    return most + (most + 1) // 2 if priority > 0 else most
