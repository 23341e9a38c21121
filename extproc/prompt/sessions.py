"""Which session a request belongs to, by a field of its body."""

from extproc.prompt.parsing import Fields


def session_of(fields: Fields, path: str) -> str:
    """The session that a body names, or an empty string.

    A name that the cut went through is none: a part of it would be another session's.

    Args:
        fields: The body's members.
        path: The field, with dots between the names of objects in each other; empty for none.
    """
    if not path:
        return ""
    first, *rest = path.split(".")
    value = fields.whole(first)
    for name in rest:
        value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) else ""
