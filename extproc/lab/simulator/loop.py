"""The events of a simulation, in order of time."""

import random
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from math import inf

from extproc.lab.replica.request import Output, Request
from extproc.lab.simulator.calls import Call, Workload
from extproc.lab.simulator.fleet import Fleet
from extproc.lab.simulator.policies import Router

_PROGRESS = 1000


@dataclass(slots=True)
class Records:
    """What became of each call, by its number: one column per attribute.

    Attributes:
        sent_s: When it was sent, in seconds from the start.
        ttft_s: From sending to the first token; -1 if none came.
        ended_s: When its last token came; -1 if it did not.
        prompt_tokens: As sent.
        cached_tokens: Found in the replica's cache.
        replica: Who served it.
    """

    sent_s: "array[float]" = field(default_factory=lambda: array("d"))
    ttft_s: "array[float]" = field(default_factory=lambda: array("d"))
    ended_s: "array[float]" = field(default_factory=lambda: array("d"))
    prompt_tokens: "array[int]" = field(default_factory=lambda: array("l"))
    cached_tokens: "array[int]" = field(default_factory=lambda: array("l"))
    replica: "array[int]" = field(default_factory=lambda: array("l"))

    def open(self, at_s: float, prompt_tokens: int, replica: int) -> None:
        """Add a call."""
        self.sent_s.append(at_s)
        self.ttft_s.append(-1.0)
        self.ended_s.append(-1.0)
        self.prompt_tokens.append(prompt_tokens)
        self.cached_tokens.append(0)
        self.replica.append(replica)


class Simulation:
    """One workload on one fleet under one policy.

    Args:
        fleet: Idle and empty replicas.
        routers: Each call goes through one of them, drawn at random. One that stands here several
            times is one whose state is shared.
        seed: Of that draw.
    """

    def __init__(self, fleet: Fleet, routers: Sequence[Router], *, seed: int) -> None:
        self.records = Records()
        self._fleet = fleet
        self._routers = routers
        self._draw = random.Random(seed)
        self._order = count()
        self._later: list[tuple[float, int, Call]] = []
        self._ends: list[tuple[float, int, int, int]] = []  # time, order, replica, plan
        self._plans = [0] * len(fleet.engines)  # the number of each engine's valid end
        self._due = [-1.0] * len(fleet.engines)  # when it is; -1 for idle
        self._open: dict[str, tuple[Call, Router]] = {}
        self._members: list[int] = []

    def run(self, workload: Workload, progress: Callable[[int], None] = lambda _: None) -> Records:
        """Run until the last response's end.

        Args:
            workload: Its calls are used up.
            progress: Called now and then with the number of calls that were sent since.
        """
        self._members = [
            number for number in range(len(self._fleet.engines)) if number not in workload.absent
        ]
        changes = list(reversed(workload.changes))
        calls = iter(workload.calls)
        following = next(calls, None)
        reported = 0
        while True:
            arrival = following.at_s if following is not None else inf
            later = self._later[0][0] if self._later else inf
            end = self._ends[0][0] if self._ends else inf
            change = changes[-1].at_s if changes else inf
            now = min(arrival, later, end)
            if now == inf:
                break
            self._fleet.now_s = max(self._fleet.now_s, min(now, change))
            if change <= now:
                self._change(changes.pop().replica)
            elif following is not None and arrival == now:
                self._send(following)
                following = next(calls, None)
            elif later == now:
                self._send(heappop(self._later)[2])
            else:
                _, _, replica, plan = heappop(self._ends)
                if plan == self._plans[replica]:
                    self._turn(replica)
            if len(self.records.sent_s) - reported >= _PROGRESS:
                progress(len(self.records.sent_s) - reported)
                reported = len(self.records.sent_s)
        progress(len(self.records.sent_s) - reported)
        return self.records

    def _send(self, call: Call) -> None:
        call.number = len(self.records.sent_s)
        router = self._routers[self._draw.randrange(len(self._routers))]
        replica = router.choose(call, self._members)
        self.records.open(call.at_s, call.prompt_tokens, replica)
        name = str(call.number)
        self._open[name] = call, router
        engine = self._fleet.engines[replica]
        engine.add(Request(name, call.prompt_tokens, call.output_tokens, call.chain))
        now = self._fleet.now_s
        if self._due[replica] < 0:
            self._plan(replica, now)  # a turn of its own: others may come at the same time
        elif self._due[replica] > now and engine.busy:
            due = engine.interrupt(now)
            if due < self._due[replica]:
                self._plan(replica, due)

    def _turn(self, replica: int) -> None:
        """End what an engine did, and begin what it does next."""
        engine, now = self._fleet.engines[replica], self._fleet.now_s
        if engine.busy:
            for output in engine.finish():
                self._receive(output)
        due = engine.begin(now)
        if due is None:
            self._due[replica] = -1.0
        else:
            self._plan(replica, due)

    def _plan(self, replica: int, due: float) -> None:
        self._plans[replica] += 1
        self._due[replica] = due
        heappush(self._ends, (due, next(self._order), replica, self._plans[replica]))

    def _receive(self, output: Output) -> None:
        call, router = self._open[output.id]
        now, records = self._fleet.now_s, self.records
        if output.index == 0:
            records.ttft_s[call.number] = now - call.at_s
            records.cached_tokens[call.number] = output.cached_tokens
            router.first_token(call)
        if output.finished:
            records.ended_s[call.number] = now
            router.ended(call)
            del self._open[output.id]
            if call.then is not None:
                pause, turn = call.then
                turn.at_s = now + pause
                heappush(self._later, (turn.at_s, next(self._order), turn))

    def _change(self, replica: int) -> None:
        if replica in self._members:
            self._members = [member for member in self._members if member != replica]
            for router in dict.fromkeys(self._routers):
                router.left(replica)
        else:
            self._members = sorted([*self._members, replica])
            self._fleet.engines[replica].cache.clear()
