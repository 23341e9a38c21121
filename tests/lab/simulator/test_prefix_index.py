from extproc.lab.simulator.calls import Call
from extproc.lab.simulator.prefix_index import PrefixIndex


def call(first: int, tokens: int, shared: int = 0) -> Call:
    own = range(first, first + tokens // 16 - shared // 16)
    return Call(0.0, [*range(1, shared // 16 + 1), *own], tokens, 1)


def test_matches_are_whole_units_of_what_was_sent() -> None:
    index = PrefixIndex(100_000)
    index.add(call(1000, 640, shared=320), 0)
    index.add(call(2000, 640), 1)
    assert index.matched(call(3000, 640, shared=320), [0, 1, 2]) == [320, 0, 0]
    assert index.matched(call(1000, 640, shared=320), [1, 0]) == [0, 640]


def test_the_least_recently_sent_is_forgotten() -> None:
    index = PrefixIndex(1280)
    index.add(call(1000, 640), 0)
    index.add(call(2000, 640), 0)
    index.add(call(1000, 640), 0)
    index.add(call(3000, 320), 0)
    assert index.size(0) == 20
    # Tails go before heads.
    assert index.matched(call(2000, 640), [0]) == [320]
    assert index.matched(call(1000, 640), [0]) == [640]


def test_a_replica_that_left_holds_nothing() -> None:
    index = PrefixIndex(100_000)
    for replica in (0, 1):
        index.add(call(1000, 640), replica)
    index.forget(0)
    assert index.matched(call(1000, 640), [0, 1]) == [0, 640]
    assert index.size(0) == 0
