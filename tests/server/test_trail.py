from extproc.prompt.model import Fingerprint
from extproc.routing import Decision, Reason
from extproc.server.trail import LENGTH, Prefix, Trail, hottest, shares

FOUND = Fingerprint(
    positions=(256, 512, 1024),
    hashes=(b"a" * 16, b"b" * 16, b"c" * 16),
    tokens=(64, 128, 256),
    total_tokens=300,
    tie=b"t" * 16,
    sticky=b"s" * 16,
)


def matched(tokens: int, replica: str = "10.0.0.1:80") -> Decision:
    return Decision((replica,), Reason.MATCHED, tokens, tokens, FOUND.total_tokens)


def test_a_prefix_is_named_by_the_deepest_checkpoint_that_was_held() -> None:
    trail = Trail()
    for tokens in (0, 64, 128, 256):
        trail.add("llm", matched(tokens), FOUND)
    trail.add("llm", Decision((), Reason.NO_PROMPT), None)

    assert [step.prefix for step in trail] == [b"", *FOUND.hashes, b""]


def test_the_hottest_prefix_spares_the_most_tokens() -> None:
    trail = Trail()
    for tokens, times in ((64, 2), (128, 3), (256, 1)):
        for at in range(times):
            trail.add("llm", matched(tokens, f"10.0.0.{at % 2 + 1}:80"), FOUND)

    found = hottest(trail, 2)

    both = ("10.0.0.1:80", "10.0.0.2:80")
    assert found == [Prefix(b"b" * 16, 128, 3, both), Prefix(b"c" * 16, 256, 1, both[:1])]
    assert len(hottest(trail, 9)) == 3


def test_shares_are_of_those_who_were_chosen() -> None:
    trail = Trail()
    trail.add("llm", matched(0, "a"), FOUND)
    trail.add("llm", matched(0, "a"), FOUND)
    trail.add("llm", matched(0, "b"), FOUND)
    trail.add("llm", Decision((), Reason.NO_REPLICAS), FOUND)

    assert shares(trail) == {"a": 0.6667, "b": 0.3333}
    assert shares([]) == {}


def test_it_keeps_so_many_by_pool() -> None:
    trail = Trail()
    for at in range(LENGTH + 10):
        trail.add("odd" if at % 2 else "even", matched(64), FOUND)

    pools = trail.since(float("-inf"))

    assert {name: len(steps) for name, steps in pools.items()} == {
        "odd": LENGTH // 2,
        "even": LENGTH // 2,
    }
    assert trail.since(float("inf")) == {}
