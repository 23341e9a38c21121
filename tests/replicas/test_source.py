from extproc.replicas import Candidates, Service, static


def test_a_static_list_is_enforced_at_once_and_learns_nothing() -> None:
    source = static(("10.0.0.1:80", "10.0.0.2:80"))

    source.served(Service("10.0.0.9:80", 1, "10.0.0.1:80", answered=True))

    assert source.told
    assert source.candidates() == Candidates(("10.0.0.1:80", "10.0.0.2:80"), matched_only=False)
