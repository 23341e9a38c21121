"""The strategies that serve traffic, by the very code that serves it."""

from collections.abc import Sequence

from extproc.affinity.memory import MemoryStore
from extproc.affinity.store import Reservation
from extproc.lab.simulator.calls import Call, fingerprint
from extproc.lab.simulator.fleet import Fleet
from extproc.pool_settings import PoolSettings
from extproc.replicas.health import Health
from extproc.replicas.prefill import PoolRate
from extproc.server.question import in_order

POOL = "simulated"


def new_store(fleet: Fleet, *, routers: int) -> MemoryStore:
    """An empty store of a pool whose replicas are configured: known before the first request.

    Args:
        fleet: The replicas and the clock.
        routers: That have a store like it.
    """
    store = MemoryStore(entries=2_000_000, routers=lambda _pool: routers, clock=fleet.clock_us)
    store.join(POOL, fleet.names)
    return store


class StoreRouter:
    """A router.

    Args:
        fleet: The replicas and the clock.
        settings: The pool's.
        store: Its own, or that of all.
        name: That no other router has.
    """

    def __init__(
        self, fleet: Fleet, settings: PoolSettings, store: MemoryStore, name: str = "0"
    ) -> None:
        self._fleet = fleet
        self._settings = settings
        self._store = store
        self._health = Health(POOL, store, clock=lambda: fleet.now_s)
        self._health.policy = settings.health
        self._rate = PoolRate(POOL, settings.prefill_rate, name, store)
        self._open: dict[int, tuple[int, float]] = {}
        self._numbers = {name: number for number, name in enumerate(fleet.names)}

    def choose(self, call: Call, members: Sequence[int]) -> int:
        """See ``Router.choose``."""
        settings = self._settings
        print_ = fingerprint(call, prefix_length=settings.length)
        fit = self._health.fit(tuple([self._fleet.names[member] for member in members]))
        decision = self._store.reserve_now(
            Reservation(
                str(call.number),
                POOL,
                in_order(fit.addresses, settings.strategy, print_),
                self._rate.applied(settings.policy),
                print_,
                standings=fit.standings,
            )
        )
        uncached = decision.total_tokens - decision.matched_tokens
        self._open[call.number] = uncached, self._fleet.now_s
        return self._numbers[decision.ranked[0]]

    def first_token(self, call: Call) -> None:
        """The router does not see it: heads of responses come before."""

    def ended(self, call: Call) -> None:
        """See ``Router.ended``."""
        self._store.release(str(call.number))
        uncached, since = self._open.pop(call.number)
        self._rate.observe(uncached, self._fleet.now_s - since)

    def left(self, replica: int) -> None:
        """See ``Router.left``."""
        self._store.leave(POOL, self._fleet.names[replica])
