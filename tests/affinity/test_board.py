"""The notice board, alone and between routers."""

import asyncio

from extproc.affinity import MemoryStore
from extproc.affinity.board import MOST_TOPICS, Board
from extproc.affinity.connect import connect
from tests.affinity.test_redis import pool, reservation, router, until
from tests.valkey import Valkey

__all__ = ["pool"]


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_ones_own_news_are_there_at_once_until_they_end() -> None:
    clock = Clock()
    board = Board(clock)
    board.post("a", "one", 10)
    board.post("b", "two", 20)
    assert board.read() == {"a": "one", "b": "two"}
    assert board.read() is board.read()
    clock.now_s += 10
    assert board.read() == {"b": "two"}
    board.post("b", "", 20)
    assert board.read() == {}


def test_what_all_can_know_gives_way_to_what_is_heard_later() -> None:
    board = Board(Clock())
    notice = board.post("a", "mine", 10)
    assert notice is not None
    board.heard([("a", "theirs", 5.0)], board.before_hearing())
    assert board.read() == {"a": "mine"}, "not told yet"
    asked = board.before_hearing()
    board.told(notice)
    board.heard([("a", "theirs", 5.0)], asked)
    assert board.read() == {"a": "mine"}, "told after the board was asked"
    board.heard([("a", "theirs", 5.0)], board.before_hearing())
    assert board.read() == {"a": "theirs"}


def test_what_was_taken_down_stays_so_until_others_can_know() -> None:
    board = Board(Clock())
    board.heard([("a", "theirs", 5.0)], [])
    notice = board.post("a", "", 10)
    assert notice is not None
    board.heard([("a", "theirs", 5.0)], board.before_hearing())
    assert board.read() == {}
    board.told(notice)
    board.heard([("a", "again", 5.0)], board.before_hearing())
    assert board.read() == {"a": "again"}


def test_what_is_heard_ends_in_time() -> None:
    clock = Clock()
    board = Board(clock)
    board.heard([("a", "one", 5.0), ("b", "two", 9.0)], [])
    clock.now_s += 5
    assert board.read() == {"b": "two"}


def test_a_full_board_takes_nothing_new() -> None:
    board = Board(Clock())
    board.heard([(str(topic), "text", 5.0) for topic in range(MOST_TOPICS)], [])
    assert board.post("new", "text", 5) is None
    assert "new" not in board.read()
    assert board.post("7", "other", 5) is not None
    assert board.read()["7"] == "other"


def test_the_memory_store_has_one_by_its_own_clock() -> None:
    now_us = 1_800_000_000_000_000
    store = MemoryStore(clock=lambda: now_us)
    store.post("p", "topic", "text", ttl_s=5)
    assert store.board("p") == {"topic": "text"}
    assert store.board("other") == {}
    now_us += 5_000_000
    assert store.board("p") == {}
    assert store.elected("p", "any job")


async def test_routers_read_each_other(valkey: Valkey, pool: str) -> None:
    async with router(valkey, "one") as one, router(valkey, "two") as two:
        for store in (one, two):
            await store.reserve(reservation(pool))
        one.post(pool, "ejected/10.0.0.1:80", "refused\n3 times, 50 %", ttl_s=60)
        one.post(pool, "gone", "soon", ttl_s=60)
        assert len(one.board(pool)) == 2
        assert two.board(pool) == {}
        await one.flush()
        await two.sync_all()
        assert two.board(pool) == one.board(pool)
        two.post(pool, "gone", "", ttl_s=60)
        await two.flush()
        await one.sync_all()
        await one.sync_all()
        assert one.board(pool) == {"ejected/10.0.0.1:80": "refused\n3 times, 50 %"}


async def test_a_notice_ends_by_the_stores_clock(valkey: Valkey, pool: str) -> None:
    async with router(valkey, "one") as one, router(valkey, "two") as two:
        for store in (one, two):
            await store.reserve(reservation(pool))
        one.post(pool, "short", "text", ttl_s=1)
        one.post(pool, "long", "text", ttl_s=100)
        await one.flush()

        async def over() -> bool:
            await two.sync_all()
            return dict(two.board(pool)) == {"long": "text"}

        await until(over)
        client = connect(valkey.url)
        key = one._pool(pool).keys.board
        assert await client.hkeys(key) == [b"long"]
        assert 0 < await client.ttl(key) <= 3600
        await client.aclose()


async def test_the_shared_board_is_bounded(valkey: Valkey, pool: str) -> None:
    async with router(valkey, "one") as one, router(valkey, "two") as two:
        for store in (one, two):
            await store.reserve(reservation(pool))
        client = connect(valkey.url)
        key = one._pool(pool).keys.board
        await client.hset(key, mapping={f"t{n}": "9999999999 x" for n in range(MOST_TOPICS)})
        two.post(pool, "new", "text", ttl_s=9)
        two.post(pool, "t1", "text", ttl_s=9)
        await two.flush()
        assert await client.hlen(key) == MOST_TOPICS
        assert not await client.hexists(key, "new")
        assert (await client.hget(key, "t1")).endswith(b" text")
        await client.aclose()


async def test_one_of_the_live_routers_is_elected(valkey: Valkey, pool: str) -> None:
    jobs = [f"poll 10.0.0.{number}:80" for number in range(40)]
    async with router(valkey, "one") as one:
        await one.reserve(reservation(pool))
        await one.sync_all()
        assert all(one.elected(pool, job) for job in jobs)
        async with router(valkey, "two") as two:
            await two.reserve(reservation(pool))
            await asyncio.gather(one.sync_all(), two.sync_all())
            await asyncio.gather(one.sync_all(), two.sync_all())
            mine = [job for job in jobs if one.elected(pool, job)]
            assert [job for job in jobs if two.elected(pool, job)] == [
                job for job in jobs if job not in mine
            ]
            assert 0 < len(mine) < len(jobs)
        await one.sync_all()
        assert all(one.elected(pool, job) for job in jobs)
