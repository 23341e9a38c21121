from structlog.testing import capture_logs

from extproc.limits import QUIET_S, Limits


def test_each_limit_is_logged_once_a_minute_and_counted_always() -> None:
    times = iter((0.0, 1.0, QUIET_S - 1, QUIET_S, QUIET_S + 1, QUIET_S + 2))
    reached = Limits(clock=lambda: next(times))

    with capture_logs() as lines:
        for _ in range(5):
            reached.hit("--a", "x")
        reached.hit("--b", "y")

    assert reached.reached == {"--a": 5, "--b": 1}
    assert [(line["limit"], line["times"]) for line in lines] == [
        ("--a", 1),
        ("--a", 4),
        ("--b", 1),
    ]
