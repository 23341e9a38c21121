"""What a router makes of the looks at an engine."""

from extproc.affinity import MemoryStore
from extproc.replicas.engine.engines import Engines
from extproc.replicas.engine.follower import Follower
from extproc.replicas.engine.progress import Progress, foreign
from extproc.replicas.engine.report import Report
from extproc.replicas.engine.state import EngineState

A = "10.0.0.1:80"


class World:
    """A follower of one replica."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.store = store or MemoryStore()
        self.now = 1000.0
        self.follower = Follower("pool", self.store, clock=lambda: self.now, now=lambda: self.now)
        self.store.join("pool", [A])

    async def look(self, state: EngineState, ours: int | None = 0) -> Report:
        members = await self.follower.members()
        self.follower.look(A, state, members, ours=ours, ttl_s=60)
        self.now += 2
        return Engines("pool", self.store).reports[A]

    async def incarnation(self, pool: str = "pool") -> str:
        return (await self.store.snapshot(pool))[A].incarnation


async def test_an_engine_that_tells_its_start_is_known_by_it() -> None:
    world = World()
    await world.look(EngineState("vllm", started_at=5.0))
    first = await world.incarnation()
    await world.look(EngineState("vllm", started_at=5.0))
    assert await world.incarnation() == first
    await world.look(EngineState("vllm", started_at=6.0))
    second = await world.incarnation()
    assert second != first
    heir = World(world.store)
    await heir.look(EngineState("vllm", started_at=6.0))
    assert await heir.incarnation() == second


async def test_counters_that_fall_tell_a_restart_where_nothing_else_does() -> None:
    world = World()
    await world.look(EngineState("sglang", prompt_tokens=100))
    first = await world.incarnation()
    await world.look(EngineState("sglang", prompt_tokens=300))
    heir = World(world.store)
    heir.now = 2000.0
    await heir.look(EngineState("sglang", prompt_tokens=400))
    assert await heir.incarnation() == first
    await heir.look(EngineState("sglang", prompt_tokens=10))
    assert await heir.incarnation() != first


async def test_a_cache_that_was_cleared_counts_as_a_restart_for_whoever_follows() -> None:
    world = World()
    await world.look(EngineState("vllm", started_at=5.0))
    first = await world.incarnation()
    world.follower.cleared(A)
    second = await world.incarnation()
    assert second != first
    await world.look(EngineState("vllm", started_at=5.0))
    heir = World(world.store)
    await heir.look(EngineState("vllm", started_at=5.0))
    assert await heir.incarnation() == second


async def test_the_ledger_of_shadow_mode_hears_of_a_restart_too() -> None:
    world = World()
    world.store.join("pool~shadow", [A])
    world.follower.ledgers = ("pool", "pool~shadow")
    await world.look(EngineState("vllm", started_at=5.0))
    await world.look(EngineState("vllm", started_at=6.0))
    assert await world.incarnation("pool~shadow") == await world.incarnation()


async def test_a_load_report_is_no_restart() -> None:
    world = World()
    await world.look(EngineState("orca", running=3))
    assert not await world.incarnation()


async def test_what_is_not_ours_is_others() -> None:
    state = EngineState("vllm", running=6, waiting=3, requests=1, computed_tokens=500)
    report = await World().look(state, ours=6)
    assert (report.foreign_running, report.foreign_waiting) == (2, 1)
    assert report.request_tokens == 500
    assert foreign(state, None) == foreign(state, 9) == foreign(state, 10) == (0, 0)


def test_a_queue_that_drains_tells_the_rate() -> None:
    progress = Progress()
    for second in range(10):
        tokens = second * 5000
        state = EngineState("vllm", waiting=3, prompt_tokens=tokens, computed_tokens=tokens)
        progress.look(state, second)
    assert progress.report(0).drain_rate == 5000


def test_an_idle_engine_tells_no_rate() -> None:
    progress = Progress()
    for second in range(10):
        progress.look(EngineState("vllm", waiting=0, prompt_tokens=second * 5000), second)
    assert progress.report(0).drain_rate == 0


def test_what_an_engine_generates_takes_room_in_its_cache() -> None:
    progress = Progress()
    progress.look(
        EngineState("vllm", capacity_tokens=1000, computed_tokens=300, generated_tokens=100), 0
    )
    assert progress.report(0).memory_tokens == 750
