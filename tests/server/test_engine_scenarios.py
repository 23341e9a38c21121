"""What engines tell, as far as the choice: scenarios of endpoint pickers."""

from extproc.replicas.engine.engines import TOPIC
from extproc.replicas.engine.report import Report
from extproc.routing import SHADOW
from tests.server.messages import chat
from tests.server.test_exchange import LONG, PICKER, STATIC, A, B, C, World, responded


def tell(world: World, **reports: Report) -> None:
    for address, report in zip((A, B, C), reports.values(), strict=True):
        world.store.post("llm", TOPIC + address, report.text(), ttl_s=600)


def busy(waiting: int, kv: float, *adapters: str) -> Report:
    """An engine whose requests all came past the routers."""
    return Report(
        "vllm",
        waiting=waiting,
        kv_permille=round(1000 * kv),
        foreign_waiting=waiting,
        request_tokens=500,
        adapters=adapters or None,
    )


async def test_the_engine_without_a_queue_is_chosen() -> None:
    world = World(STATIC | PICKER)
    tell(world, a=busy(3, 0.2), b=busy(0, 0.1), c=busy(10, 0.2))
    for number in range(10):
        assert (await world.ask(chat(f"{number} {LONG}"))).ranked == [B, A, C]
        world.router.store.release(f"00000000-{number}")


async def test_a_subset_of_only_the_busiest_is_chosen_all_the_same() -> None:
    world = World(STATIC | PICKER)
    tell(world, a=busy(3, 0.2), b=busy(0, 0.1), c=busy(10, 0.2))
    assert (await world.ask(chat(LONG), subset="10.0.0.3:80")).ranked == [C]


async def test_a_loaded_adapter_is_preferred_until_its_engine_is_overloaded() -> None:
    world = World(STATIC | PICKER)
    tell(world, a=busy(0, 0.2, "x"), b=busy(0, 0.1), c=busy(1, 0.2, "sql", "x"))
    for number in range(10):
        asked = await world.ask(chat(f"{number} {LONG}", model="sql"))
        assert asked.ranked[0] == C
        asked.exchange.end()
    tell(world, a=busy(0, 0.2, "x"), b=busy(0, 0.1), c=busy(20, 0.9, "sql", "x"))
    assert (await world.ask(chat(LONG, model="sql"))).ranked[0] != C
    base = [(await world.ask(chat(f"{n} {LONG}"))).ranked[0] for n in range(10)]
    assert C not in base


async def test_a_full_cache_forgets_by_the_size_that_engines_tell() -> None:
    world = World(STATIC)
    await world.serve(A, chat(LONG), subset="10.0.0.1:80")
    other = await world.ask(chat("another " + LONG), subset="10.0.0.1:80")
    assert other.facts["total_tokens"] > 1000
    tell(world, a=Report(memory_tokens=1000), b=Report(), c=Report())
    assert (await world.ask(chat(LONG), subset="10.0.0.1:80")).facts["matched_tokens"] == 0


async def test_predictions_and_choices_not_followed_are_counted_for_each_replica() -> None:
    world = World(STATIC)
    for _ in range(2):
        first = await world.ask(chat(LONG))
        chosen = first.ranked[0]
        await first.responded(responded(chosen))
        first.exchange.end()
    total, matched = first.facts["total_tokens"], first.facts["matched_tokens"]
    asked = await world.ask(chat(LONG))
    await asked.responded(responded(asked.ranked[1]))
    found = world.router.stats.pools["llm"].replicas
    assert list(found) == [chosen]
    assert (found[chosen].total, found[chosen].matched) == (2 * total, matched)
    assert found[chosen].passed_over == 1


async def test_envoys_own_choices_are_held_against_engines_too() -> None:
    world = World({**STATIC, "x-prefix-mode": "shadow"})
    for _ in range(2):
        await world.serve(B, chat(LONG))
    (counts,) = world.router.stats.pools["llm"].replicas.values()
    assert 0 < counts.matched < counts.total
    assert "llm" + SHADOW not in world.router.stats.pools
