from extproc.routing import FULL, Policy, Question, Standing, Strategy, apparent, choose, together
from extproc.routing.standing import MOST_QUEUED


def test_who_stands_full_carries_what_it_has() -> None:
    assert apparent([FULL, FULL], [3, 0], [500, 7]) == ([3, 0], [500, 7])


def test_half_a_replica_carries_twice_as_much() -> None:
    assert apparent([Standing(500)], [3], [501]) == ([6], [1002])


def test_what_others_sent_it_is_in_its_queue() -> None:
    assert apparent([Standing(1000, 250), Standing(500, 250)], [1, 1], [0, 10]) == (
        [1, 2],
        [250, 520],
    )


def test_views_add_up() -> None:
    one = {"a": Standing(500, 10), "b": Standing(1000, 5)}
    other = {"a": Standing(200, 20), "c": Standing(300, MOST_QUEUED)}
    assert together([one, other, {"c": Standing(1000, 1)}]) == {
        "a": Standing(100, 30),
        "b": Standing(1000, 5),
        "c": Standing(300, MOST_QUEUED),
    }
    assert together([]) == {}


def test_the_warm_replica_is_chosen_until_it_has_ten_times_the_load() -> None:
    def first(in_flight: int) -> int:
        counts, pending = apparent([FULL, Standing(100)], [in_flight, 1], [0, 0])
        policy = Policy(Strategy.LEAST_OUTSTANDING_REQUESTS)
        return choose(Question(policy, counts, pending, [0, 0], None)).ranked[0]

    assert [first(10), first(11)] == [0, 1]
