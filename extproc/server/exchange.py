"""One request and its response: the choice, what came of it, and the end."""

from time import monotonic, perf_counter, time
from typing import NamedTuple

from extproc.affinity.store import Reservation, StoreError
from extproc.pool_settings import Parsed
from extproc.processing import EXPLAIN
from extproc.processing.events import (
    Answer,
    Choice,
    DecisionDue,
    Refusal,
    RequestHead,
    Responded,
)
from extproc.prompt.model import Fingerprint, Prompt, Unreadable
from extproc.replicas import Service, Source, Subset
from extproc.replicas.faults import findings
from extproc.replicas.fleet import Fleet
from extproc.replicas.prefill import PoolRate
from extproc.routing import SHADOW, Decision, Mode, Protocol, Reason, Strategy
from extproc.server.decision_log import Entry
from extproc.server.explanation import explain
from extproc.server.question import (
    fingerprint_of,
    in_order,
    limit_for,
    prompt_of,
    session_key,
)
from extproc.server.router import Router, pool_name, problem_of, route_of
from extproc.server.stats import Outcome, PoolStats
from extproc.server.tracing import Span

SERVED = "~served"
"""Ending of a reservation's id where it was made because a replica of Envoy's choice served."""

_NOBODY = Decision((), Reason.NO_REPLICAS)

_REFUSALS = {
    Reason.NO_REPLICAS: Refusal(503, Reason.NO_REPLICAS, "The pool has no replica that is ready."),
    Reason.NO_SUBSET: Refusal(
        503, Reason.NO_SUBSET, "None of the replicas that the gateway allows is ready."
    ),
    Reason.SHED: Refusal(
        429, Reason.SHED, "All replicas have as many requests as they may.", retry_after_s=1
    ),
}
"""What a client is told where nobody can be chosen, and the router is an endpoint picker."""


class Weighing(NamedTuple):
    """What would come of a request.

    Attributes:
        prompt: What was read of it, or why nothing was.
        fingerprint: Its checkpoints, or None where there is no readable prompt.
        decision: The explained decision.
    """

    prompt: Prompt | Unreadable
    fingerprint: Fingerprint | None
    decision: Decision


class Exchange:
    """One HTTP request on its way through the router.

    Holds at most two reservations: of the choice, and of who served where the choice was Envoy's.

    Args:
        router: What all exchanges share.
        parsed: The pool's settings, as the stream brought them.
        span: Is told of the decision and the end, or None.
    """

    def __init__(self, router: Router, parsed: Parsed, span: Span | None = None) -> None:
        self._router = router
        self._span = span
        self._settings, self._errors = parsed
        self._shadowed = self._settings.mode is Mode.SHADOW
        self._store = router.store
        self._id = router.next_id()
        self._held: list[str] = []
        self._pool = ""
        self._stats: PoolStats | None = None
        self._source: Source | None = None
        self._problem: Unreadable | None = None
        self._found: Fingerprint | None = None
        self._session = b""
        self._decision = _NOBODY
        self._fleet: Fleet | None = None
        self._rate: PoolRate | None = None
        self._decided_at = 0.0
        self._prefilled = False
        self._ended = False
        self._refused = False
        self._served, self._status = "", 0

    @property
    def window(self) -> int:
        """Most bytes of the body to read."""
        return self._router.window(self._settings)

    def readable(self, head: RequestHead) -> bool:
        """Whether to wait for the body of a request."""
        self._problem = problem_of(head)
        return self._problem is None

    async def choose(self, due: DecisionDue) -> Answer:
        """Choose a replica, or refuse. A store that fails leaves the choice to Envoy."""
        settings = self._settings
        self._decided_at = monotonic()
        self._pool = pool_name(due.head, settings)
        self._stats = stats = self._router.stats.pool(self._pool)
        stats.asked(route_of(due.head), settings)
        if self._errors:
            self._router.report(self._errors, due.head)
        if not self._router.admits(self._pool, settings):
            self.failed()
            return Choice()
        self._source = self._router.source(self._pool, due.head, settings)
        stats.source = self._source.name
        decision = self._decision = await self._decide(due, self._prompt(due))
        self._router.stats.trail.add(self._pool, decision, self._found)
        facts = {
            "pool": self._pool,
            "strategy": settings.strategy.value,
            "reason": decision.reason.value,
            "matched_tokens": decision.matched_tokens,
            "total_tokens": decision.total_tokens,
        }
        explanation = explain(decision, settings.strategy) if self._asks_why(due.head) else ""
        refusal = _REFUSALS.get(decision.reason) if self._picks and not self._shadowed else None
        if refusal is None:
            stats.decided(decision)
            return Choice(() if self._shadowed else decision.ranked, facts, explanation)
        stats.refused(decision)
        self._refused, self._status = True, refusal.status
        return refusal._replace(facts=facts, explanation=explanation)

    @property
    def _picks(self) -> bool:
        """Whether this is an endpoint picker, which leaves no choice to Envoy."""
        return self._settings.protocol is Protocol.EPP

    def _asks_why(self, head: RequestHead) -> bool:
        """Whether to explain the decision: where the pool allows it, to who asks."""
        return self._settings.explain and head.header(EXPLAIN) == "1"

    def failed(self) -> None:
        """Tell that choosing failed by a fault or limit of our own; the choice is Envoy's."""
        self._decision = Decision((), Reason.FALLBACK)
        self._release()
        if self._stats is not None:
            self._stats.decided(self._decision)

    def moot(self) -> None:
        """Tell that the answer came too late: Envoy went on without it."""
        if self._refused and self._stats is not None:
            self._stats.rejected[self._decision.reason] -= 1
        self._decision = _NOBODY
        self._release()

    def responded(self, event: Responded) -> None:
        """Take in who served."""
        if self._source is None or self._stats is None or self._ended:
            return
        self._served, self._status = event.address, event.status
        self._judge(event)
        ok = 0 < event.status < 400
        chosen = "" if self._shadowed or not self._decision.ranked else self._decision.ranked[0]
        outcome = _outcome(event, chosen)
        self._stats.outcomes[outcome] += 1
        if ok and event.address:
            self._stats.start_seconds.observe(monotonic() - self._decided_at)
        if event.address:
            answered = ok or event.details == "via_upstream"
            self._source.served(Service(event.address, event.attempts, chosen, answered))
        elif event.details == "via_upstream" or (ok and not event.details):
            self._router.served_by_nobody(self._pool)
        if chosen:
            self._prefilled = ok and event.address == chosen
            if self._prefilled:
                self._stats.served(chosen, self._decision)
            elif outcome is Outcome.ELSEWHERE:
                self._stats.replica(chosen).passed_over += 1
            self._store.served(self._id, event.address, ok=ok)
            return
        if self._shadowed and self._decision.ranked:
            self._store.served(self._id, self._decision.ranked[0], ok=ok)
        if event.address and ok:
            # Apart, because it may wait on the store: Envoy's response should not, and Envoy ends
            # the stream of a short response before the store has answered.
            self._router.spawn(self._record(event.address))

    def _judge(self, event: Responded) -> None:
        """Take in what a response tells of the replicas' health."""
        if self._fleet is None:
            return
        if event.address:
            report = self._fleet.reported(event.address, event.headers)
            if report is not None:
                self._router.spawn(report)
        health = self._fleet.health
        health.ended(self._id)
        for address, fault in findings(event, () if self._shadowed else self._decision.ranked):
            if fault is None:
                health.answered(address, self._decided_at)
            else:
                health.failed(address, fault)

    async def _record(self, address: str) -> None:
        """Make a choice of Envoy's count like one of ours."""
        reservation = Reservation(
            id=self._id + SERVED,
            pool=self._pool,
            candidates=(address,),
            policy=self._settings.policy,
            fingerprint=self._found,
            hold=not self._ended,
            session=self._session,
        )
        served = await self._reserve(reservation)
        if served.ranked and self._stats is not None:
            self._stats.served(address, served)
        if self._shadowed and self._decision.ranked and self._stats is not None:
            self._stats.shadow.compare(self._decision, served)

    def end(self) -> None:
        """The response ended, or the stream did. Idempotent."""
        if self._prefilled and not self._ended and self._rate is not None:
            uncached = self._decision.total_tokens - self._decision.matched_tokens
            self._rate.observe(uncached, monotonic() - self._decided_at)
        if not self._ended and self._stats is not None:
            if self._served and 0 < self._status < 400:
                self._stats.response_seconds.observe(monotonic() - self._decided_at)
            if self._router.log is not None:
                self._router.log.add(self._entry())
        first, self._ended = not self._ended, True
        self._release()
        if first and self._span is not None and self._stats is not None:
            self._span.end(self._entry())

    def _entry(self) -> Entry:
        duration_s = monotonic() - self._decided_at
        return Entry(
            at_s=time() - duration_s,
            pool=self._pool,
            settings=self._settings,
            decision=self._decision,
            fingerprint=self._found,
            served=self._served,
            status=self._status,
            duration_s=duration_s,
        )

    def _release(self) -> None:
        if self._fleet is not None:
            self._fleet.health.ended(self._id)
        while self._held:
            self._store.release(self._held.pop())

    def _prompt(self, due: DecisionDue) -> Prompt | None:
        """Read the prompt, and what the ledger of what really happens is told of the request."""
        assert self._stats is not None
        found = self._problem or prompt_of(due, self._settings, self.window)
        problem = found if isinstance(found, Unreadable) else found.problem
        if problem is not None:
            self._stats.problems[problem] += 1
        prompt = None if isinstance(found, Unreadable) else found
        self._found, self._session = self._asked(prompt, due, self._pool)
        return prompt

    def _asked(
        self, prompt: Prompt | None, due: DecisionDue, pool: str
    ) -> tuple[Fingerprint | None, bytes]:
        """The fingerprint and the session of a request in a pool."""
        settings = self._settings
        found = fingerprint_of(prompt, due, settings, pool) if prompt else None
        by_session = settings.strategy is Strategy.KV_AWARE
        return found, session_key(prompt, due.head, settings, pool) if by_session else b""

    async def weigh(self, due: DecisionDue) -> Weighing:
        """What ``choose`` would decide now. Nothing is booked, counted or logged.

        The pool must have been asked for before.
        """
        self._pool = pool_name(due.head, self._settings)
        self._source = self._router.source(self._pool, due.head, self._settings)
        found = problem_of(due.head) or prompt_of(due, self._settings, self.window)
        prompt = None if isinstance(found, Unreadable) else found
        self._found, self._session = self._asked(prompt, due, self._pool)
        plan = self._plan(due, prompt)
        decision = plan if isinstance(plan, Decision) else await self._store.weigh(plan)
        return Weighing(found, self._found, decision)

    async def _decide(self, due: DecisionDue, prompt: Prompt | None) -> Decision:
        plan = self._plan(due, prompt)
        if isinstance(plan, Decision):
            return plan
        self._decided_at = monotonic()
        if self._stats is not None:
            self._stats.prefill_rate = plan.policy.prefill_rate
        decision = await self._reserve(plan)
        if decision.ranked and not self._shadowed and self._fleet is not None:
            self._fleet.health.asked(self._id, decision.ranked[0])
        return decision

    def _plan(self, due: DecisionDue, prompt: Prompt | None) -> Reservation | Decision:
        """What to ask the store, or the decision where there is nobody to choose."""
        assert self._source is not None
        fleet = self._fleet = self._router.fleet(self._pool, self._settings)
        candidates = self._source.candidates()
        if not candidates.addresses:
            hinted = isinstance(self._source, Subset)
            reason = Reason.NO_SUBSET if hinted else Reason.NO_REPLICAS
            total = self._found.total_tokens if self._found else 0
            return Decision((), reason, total_tokens=total)
        fit = fleet.fit(candidates, prompt.model if prompt else "")
        self._rate = self._router.rate(self._pool, self._settings)
        policy = fleet.applied(self._rate.applied(self._settings.policy))
        pool, found, session = self._pool, self._found, self._session
        if self._shadowed:  # another ledger, in which our choices count as served
            pool += SHADOW
            found, session = self._asked(prompt, due, pool)
        return Reservation(
            id=self._id,
            pool=pool,
            candidates=in_order(fit.addresses, policy.strategy, found, session),
            policy=policy,
            fingerprint=found,
            matched_only=candidates.matched_only and not self._shadowed and not self._picks,
            standings=fit.standings,
            session=session,
            max_in_flight=limit_for(due.head, self._settings),
            explain=self._asks_why(due.head),
        )

    async def _reserve(self, reservation: Reservation) -> Decision:
        self._held.append(reservation.id)
        start = perf_counter()
        try:
            return await self._store.reserve(reservation)
        except StoreError:
            found = reservation.fingerprint
            return Decision((), Reason.FALLBACK, total_tokens=found.total_tokens if found else 0)
        finally:
            self._router.stats.store_seconds.observe(perf_counter() - start)
            if self._ended:
                self._store.release(reservation.id)


def _outcome(event: Responded, chosen: str) -> Outcome:
    if not event.address:
        return Outcome.NOBODY
    if not chosen:
        return Outcome.ENVOY
    if event.address == chosen:
        return Outcome.FIRST
    return Outcome.ELSEWHERE if event.attempts == 1 else Outcome.RETRIED
