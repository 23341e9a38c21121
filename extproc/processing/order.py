"""The order in which the messages of one direction may come."""

from enum import Enum, auto

from extproc.processing.replies import Kind


class Place(Enum):
    """Where one direction of a stream stands."""

    START = auto()
    BODY = auto()
    END = auto()

    __hash__ = object.__hash__  # members are keys; Enum's own hash is a call of Python code


class Part(Enum):
    """What a message is, whatever its direction."""

    HEADERS = auto()
    BODY = auto()
    TRAILERS = auto()

    __hash__ = object.__hash__


PART = {
    Kind.REQUEST_HEADERS: Part.HEADERS,
    Kind.REQUEST_BODY: Part.BODY,
    Kind.REQUEST_TRAILERS: Part.TRAILERS,
    Kind.RESPONSE_HEADERS: Part.HEADERS,
    Kind.RESPONSE_BODY: Part.BODY,
    Kind.RESPONSE_TRAILERS: Part.TRAILERS,
}

# (place, part, does the direction end with it) -> the next place, and what was wrong, or "".
NEXT: dict[tuple[Place, Part], tuple[Place, str]] = {
    (Place.START, Part.HEADERS): (Place.BODY, ""),
    (Place.START, Part.BODY): (Place.BODY, "body before headers"),
    (Place.START, Part.TRAILERS): (Place.END, "trailers before headers"),
    (Place.BODY, Part.HEADERS): (Place.BODY, "headers repeated"),
    (Place.BODY, Part.BODY): (Place.BODY, ""),
    (Place.BODY, Part.TRAILERS): (Place.END, ""),
    (Place.END, Part.HEADERS): (Place.END, "headers repeated"),
    (Place.END, Part.BODY): (Place.END, "body after the end"),
    (Place.END, Part.TRAILERS): (Place.END, "trailers after the end"),
}
