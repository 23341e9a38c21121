"""Members by a file of Envoy's, watched: a bootstrap, a CDS or an EDS file, in YAML or JSON."""

import asyncio
import contextlib
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import yaml

from extproc.replicas.assignment import numeric
from extproc.replicas.dns import DnsFeed, lookup_hosts
from extproc.replicas.eds import EdsFeed
from extproc.replicas.endpoint import Endpoint, SourceError
from extproc.replicas.envoy_config import Hosts, InFile, Place, find
from extproc.replicas.target import Asking, EdsTarget, FileTarget
from extproc.replicas.watch import Feed, Sink

_MOST_FILES = 4
Stamp: TypeAlias = tuple[int, int, int] | None


class Reading(NamedTuple):
    """What files told.

    Attributes:
        place: The hosts, or a control plane that knows them.
        stamps: Every file that was read, and its stamp before that.
    """

    place: Hosts | EdsTarget
    stamps: dict[str, Stamp]


class FileFeed:
    """Looks whether files have changed, and follows what they tell.

    Args:
        target: The file, and the cluster in it.
    """

    def __init__(self, target: FileTarget) -> None:
        self._target = target
        self._feed: Feed | None = None
        self._place: Place | None = None

    async def follow(self, sink: Sink) -> None:
        """See ``Feed.follow``."""
        while True:
            reading = await asyncio.to_thread(read, self._target.path, self._target.cluster)
            inner = asyncio.create_task(self._feed_of(reading.place).follow(sink))
            try:
                while not await asyncio.to_thread(changed, reading.stamps):
                    await asyncio.wait({inner}, timeout=self._target.interval_s)
                    if inner.done():
                        inner.result()
            finally:
                inner.cancel()
                with contextlib.suppress(asyncio.CancelledError, SourceError):
                    await inner

    def _feed_of(self, place: Hosts | EdsTarget) -> Feed:
        if self._feed is None or place != self._place:  # a stream knows what it was told before
            self._place, self._feed = place, _open(place, self._target.interval_s)
        return self._feed


def read(path: str, cluster: str) -> Reading:
    """Read a file, and those that it refers to.

    Raises:
        SourceError: They do not tell the cluster's hosts.
    """
    stamps: dict[str, Stamp] = {}
    place: Place = InFile(path, cluster)
    while isinstance(place, InFile):
        if place.path in stamps or len(stamps) >= _MOST_FILES:
            raise SourceError(f"{path} leads to {place.path}, which does not tell {cluster!r}")
        file = place.path
        stamps[file] = _stamp(file)
        try:
            place = find(_load(file), place.name)
        except SourceError as error:
            raise SourceError(f"{file}: {error}") from None
    return Reading(place, stamps)


def changed(stamps: dict[str, Stamp]) -> bool:
    """Whether one of the files is another than it was."""
    return any(_stamp(path) != stamp for path, stamp in stamps.items())


def _stamp(path: str) -> Stamp:
    try:
        found = Path(path).stat()  # of what a link leads to: Kubernetes exchanges links
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def _load(path: str) -> Any:
    try:
        return yaml.load(Path(path).read_bytes(), Loader=_Loader)  # noqa: S506  # a safe loader
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise SourceError(f"neither YAML nor JSON: {' '.join(str(error).split())[:300]}") from None


_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_SafeLoader):  # type: ignore[misc]  # which of the two, only the machine knows
    """Knows the tag by which Envoy's YAML marks what is there for its anchors alone."""


_Loader.add_constructor("!ignore", lambda _loader, _node: None)


class _Fixed:
    """Endpoints that are simply known."""

    def __init__(self, endpoints: list[Endpoint], interval_s: float) -> None:
        self._endpoints = endpoints
        self._interval_s = interval_s

    async def follow(self, sink: Sink) -> None:
        while True:
            sink.heard(self._endpoints)
            await asyncio.sleep(self._interval_s)


def _open(place: Hosts | EdsTarget, interval_s: float) -> Feed:
    if isinstance(place, EdsTarget):
        return EdsFeed(place)
    if place.family is None:
        return _Fixed(numeric(place.hosts), interval_s)
    lookup = partial(lookup_hosts, hosts=place.hosts, family=place.family)
    return DnsFeed(lookup, Asking())
