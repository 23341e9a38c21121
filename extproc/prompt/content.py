"""Collects prompt bytes, so that different prompts cannot meet and a longer one extends a shorter.

Every item is a frame: the byte ``0xFF``, a letter, the payload. Payloads are UTF-8, in which that
byte never occurs, or of a fixed length. So a frame needs neither a length in front nor an end: the
next turn of a chat, or the rest of a string that was cut, only appends bytes.
"""

import json
import marshal
import sys
from array import array
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

from xxhash import xxh3_128

from extproc.prompt.model import ToolsPlace

MESSAGE: Final = b"\xffM"
NAME: Final = b"\xffN"
TEXT: Final = b"\xffT"
REASONING: Final = b"\xffR"
CALL: Final = b"\xffC"
ARGUMENTS: Final = b"\xffA"
CALL_ID: Final = b"\xffI"
RESULT: Final = b"\xffU"
FAILED: Final = b"\xffW"
END: Final = b"\xffE"
TOOL: Final = b"\xffF"
HEAD: Final = b"\xffH"
MEDIUM: Final = b"\xffX"
TOKENS: Final = b"\xffK"
QUERY: Final = b"\xffQ"
DOCUMENT: Final = b"\xffD"
SUFFIX: Final = b"\xffS"
CONVERSATION: Final = b"\xffV"
PREVIOUS: Final = b"\xffP"
BATCH: Final = b"\xffB"
OTHER: Final = b"\xffO"

CUT: Final = b"\xff!"
"""Ends the salt of a prompt whose body went on."""

_PADDING: Final = b"\xff"  # no letter, so it cannot be taken for a frame
_CACHED_TOOLS_BYTES: Final = 1 << 18

_encode = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, check_circular=False
).encode


def canonical(value: Any) -> bytes:
    """Serialise parsed JSON with sorted keys and no whitespace, as UTF-8."""
    return _encode(value).encode()


def without_marks(value: Any) -> Any:
    """The mapping without ``cache_control``, which steers caching and is never rendered."""
    if isinstance(value, dict) and "cache_control" in value:
        return {key: item for key, item in value.items() if key != "cache_control"}
    return value


@lru_cache(maxsize=64)
def _cached_tool_frames(packed: bytes) -> bytes:
    return _tool_frames(marshal.loads(packed))  # noqa: S302  # our own bytes, packed below


def _tool_frames(tools: list[Any]) -> bytes:
    return b"".join(TOOL + canonical(without_marks(tool)) for tool in tools)


class Content:
    """Prompt bytes under construction.

    Args:
        text_limit: How many characters of the texts to keep as the sample.
        tools_place: Where the chat template puts the definitions of tools.
    """

    __slots__ = ("_media", "_pieces", "_room", "_sample", "text_limit", "tools_place")

    def __init__(self, text_limit: int, tools_place: ToolsPlace = ToolsPlace.FIRST) -> None:
        self.text_limit = text_limit
        self.tools_place = tools_place
        self._pieces: list[bytes] = []
        self._media: list[int] = []  # how many pieces there were just behind each medium
        self._sample: list[str] = []
        self._room = text_limit

    def frame(self, mark: bytes, value: str) -> None:
        """Append a string that is no text of a message: a role, a name, an identifier."""
        self._pieces += (mark, value.encode())

    def text(self, value: str, mark: bytes = TEXT) -> None:
        """Append a text, and as much of it to the sample as there is room for."""
        self._pieces += (mark, value.encode())
        if self._room > 0:
            head = value[: self._room]
            self._sample.append(head)
            self._room -= len(head)

    def json(self, mark: bytes, value: Any) -> None:
        """Append parsed JSON."""
        self._pieces += (mark, canonical(value))

    def tools(self, tools: list[Any]) -> None:
        """Append tool definitions in their order.

        Agents send the same long list with each turn. Packing it costs a fifth of sorting its
        keys, so the sorted form is looked up by the packed one.
        """
        packed = marshal.dumps(tools, 2)  # version 2: equal values give equal bytes
        small = len(packed) <= _CACHED_TOOLS_BYTES
        self._pieces.append(_cached_tool_frames(packed) if small else _tool_frames(tools))

    def medium(self, value: Any) -> None:
        """Append the hash of an image, an audio, a video, a file or an embedding."""
        digest = xxh3_128()
        _feed(digest, value)
        self._pieces.append(MEDIUM + digest.digest())
        self._media.append(len(self._pieces))

    def tokens(self, ids: list[Any]) -> None:
        """Append token ids, 4 bytes each; the first byte of an id is never that of a frame."""
        try:
            packed = array("I", ids)
        except (TypeError, OverflowError):
            self.json(OTHER, ids)
            return
        if sys.byteorder == "little":
            packed.byteswap()
        data = packed.tobytes()
        if b"\xff" in data[::4]:
            self.json(OTHER, ids)
        else:
            self._pieces += (TOKENS, data)

    def conversation(self, identifier: str, checkpoints: Iterable[int]) -> None:
        """Append the identifier of a conversation whose earlier turns are not in the body.

        A checkpoint right behind it keeps the conversation's turns together, and it counts as
        one medium for the history that it stands for. It is the whole sample too.

        Args:
            identifier: The conversation's id.
            checkpoints: Ascending offsets, endless.
        """
        self.frame(CONVERSATION, identifier)
        size = sum(map(len, self._pieces))
        position = next(p for p in checkpoints if p >= size)
        self._pieces.append(_PADDING * (position - size))
        self._media.append(len(self._pieces))
        self._sample = [identifier]
        self._room = 0

    def finish(self) -> tuple[bytes, tuple[int, ...], bytes]:
        """The prompt bytes, the offsets behind its media, and the sample of its texts."""
        content = b"".join(self._pieces)
        return content, tuple(self._media_offsets()), "".join(self._sample).encode()

    def _media_offsets(self) -> Iterator[int]:
        start = offset = 0
        for stop in self._media:
            offset += sum(map(len, self._pieces[start:stop]))
            yield offset
            start = stop


_UNSEEN: Final = frozenset({"type", "detail", "cache_control", "citations"})


def _feed(digest: xxh3_128, value: Any) -> None:
    """Hash a medium as it is, without writing its megabytes out as JSON first."""
    if isinstance(value, str):
        digest.update(b"\xffs")
        digest.update(value.encode())
    elif isinstance(value, dict):
        shown = {k: v for k, v in value.items() if k not in _UNSEEN and v is not None}
        if shown.keys() == {"url"}:  # "image_url": "…" and "image_url": {"url": "…"} are one
            _feed(digest, shown["url"])
            return
        digest.update(b"\xff{")
        for key in sorted(shown):
            digest.update(b"\xffk" + key.encode())
            _feed(digest, shown[key])
        digest.update(b"\xff}")
    elif isinstance(value, list) and not (value and isinstance(value[0], int | float)):
        digest.update(b"\xff[")
        for item in value:
            _feed(digest, item)
        digest.update(b"\xff]")
    else:
        digest.update(b"\xffj" + canonical(value))
