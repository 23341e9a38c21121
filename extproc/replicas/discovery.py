"""Members that a discovery source tells."""

import asyncio
from collections.abc import Callable, Mapping

from extproc.replicas.endpoint import Endpoint, routable, standings
from extproc.replicas.feeds import open_feed
from extproc.replicas.observation import Membership
from extproc.replicas.source import Candidates, Service, Source
from extproc.replicas.watch import Feed, SourceStatus, Watch

_MAX_POOLS = 1000


class Discovered:
    """The members of one pool, as a watch has them.

    Until the source has answered, the pool is learned from who serves. Members that the source
    names no more leave the store, and with them only their own affinity; unhealthy ones stay
    members, but are not chosen while others are there.

    Args:
        pool: The pool's name in the store.
        store: Who shares the members among routers.
        watch: Follows the source.
        until_then: Knows the members before the first answer.
    """

    def __init__(self, pool: str, store: Membership, watch: Watch, until_then: Source) -> None:
        self.name = watch.kind
        self._pool = pool
        self._store = store
        self._watch = watch
        self._until_then = until_then
        self._candidates: Candidates | None = None
        self._members: frozenset[str] = frozenset()
        self._left: frozenset[str] = frozenset()
        watch.listeners.append(self._heard)
        if watch.endpoints is not None:
            self._heard(watch.endpoints)

    @property
    def told(self) -> bool:
        """Whether the source has answered."""
        return self._candidates is not None

    def candidates(self) -> Candidates:
        """Who may be chosen now."""
        self._watch.touch()
        return self._candidates or self._until_then.candidates()

    def served(self, service: Service) -> None:
        """The source knows better than what is served, once it has answered."""
        if self._candidates is None:
            self._until_then.served(service)

    def status(self) -> SourceStatus:
        """How the source is doing."""
        return self._watch.status()

    def close(self) -> None:
        """Hear no more; the watch goes on for others."""
        self._watch.listeners.remove(self._heard)

    def _heard(self, endpoints: tuple[Endpoint, ...]) -> None:
        candidates = Candidates(routable(endpoints), standings=standings(endpoints))
        if candidates != self._candidates:
            self._candidates = candidates
        members = frozenset(endpoint.address for endpoint in endpoints)
        left = self._members - members
        # Once more for those of last time: a request under way may have made them members again.
        for gone in sorted(left | (self._left - members) & set(self._store.members(self._pool))):
            self._store.leave(self._pool, gone)
        if new := members - self._members:
            self._store.join(self._pool, sorted(new))
        self._members, self._left = members, left


class Discovery:
    """All watches of a process, and the pools that they are for.

    Args:
        store: Who shares the members among routers.
        open_feed: Makes the feed for a URL.
    """

    def __init__(self, store: Membership, *, open_feed: Callable[[str], Feed] = open_feed) -> None:
        self._store = store
        self._open_feed = open_feed
        self._watches: dict[str, Watch] = {}
        self._pools: dict[str, tuple[str, Discovered]] = {}

    def source(self, pool: str, url: str, until_then: Callable[[], Source]) -> Discovered:
        """The members of a pool by a URL. Its watch is started at the first call.

        Args:
            pool: The pool's name.
            url: A valid discovery URL; another one than before takes the former's place.
            until_then: Makes the source to use before the first answer.
        """
        known = self._pools.get(pool)
        if known is not None and known[0] == url:
            return known[1]
        if known is None and len(self._pools) >= _MAX_POOLS:
            known = self._pools.pop(next(iter(self._pools)))
        if known is not None:
            known[1].close()
        found = Discovered(pool, self._store, self._watch(url), until_then())
        self._pools[pool] = url, found
        return found

    def statuses(self) -> Mapping[str, SourceStatus]:
        """Pool to the state of its source."""
        return {pool: source.status() for pool, (_, source) in self._pools.items()}

    async def close(self) -> None:
        """End all watches."""
        await asyncio.gather(*(watch.close() for watch in self._watches.values()))

    def _watch(self, url: str) -> Watch:
        watch = self._watches.get(url)
        if watch is None:
            watch = Watch(url, self._open_feed(url), on_end=lambda: self._ended(url))
            self._watches[url] = watch
            watch.start()
        return watch

    def _ended(self, url: str) -> None:
        del self._watches[url]
        for pool in [pool for pool, (used, _) in self._pools.items() if used == url]:
            del self._pools[pool]
