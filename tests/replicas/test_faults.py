from extproc.processing.events import Responded
from extproc.replicas.faults import Fault, Finding, findings

A, B, C = "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"


def found(
    address: str,
    attempts: int,
    status: int,
    flags: int = 0,
    details: str = "via_upstream",
    ranked: tuple[str, ...] = (A, B, C),
) -> list[Finding]:
    return list(findings(Responded(address, attempts, status, flags, details), ranked))


def test_an_answer_is_an_answer() -> None:
    assert found(A, 1, 200) == [Finding(A, None)]
    assert found(A, 1, 429) == [Finding(A, None)], "busy, but well"
    assert found(A, 1, 404, details="") == [Finding(A, None)], "some versions tell no details"


def test_a_status_of_500_or_more_is_the_replicas_fault() -> None:
    assert found(A, 1, 500) == [Finding(A, Fault.ERROR)]
    assert found(A, 1, 503) == [Finding(A, Fault.ERROR)]


def test_who_was_tried_before_failed() -> None:
    assert found(B, 2, 200) == [Finding(A, Fault.RETRIED), Finding(B, None)]
    assert found(C, 3, 200) == [
        Finding(A, Fault.RETRIED),
        Finding(B, Fault.RETRIED),
        Finding(C, None),
    ]
    assert found("10.9.9.9:80", 5, 200)[:3] == [Finding(each, Fault.RETRIED) for each in (A, B, C)]


def test_nobody_failed_before_a_choice_of_envoys() -> None:
    assert found(B, 3, 200, ranked=()) == [Finding(B, None)]


def test_envoys_own_answers_tell_what_happened() -> None:
    refused = "upstream_reset_before_response_started{remote_connection_failure}"
    assert found(A, 1, 503, 32, refused) == [Finding(A, Fault.REFUSED)]
    assert found(C, 3, 503, 32800, refused)[-1] == Finding(C, Fault.REFUSED)
    reset = "upstream_reset_before_response_started{connection_termination}"
    assert found(A, 1, 503, 64, reset) == [Finding(A, Fault.RESET)]
    protocol = "upstream_reset_before_response_started{protocol_error}"
    assert found(A, 1, 502, 1 << 24, protocol) == [Finding(A, Fault.RESET)]
    assert found(A, 1, 504, 4, "response_timeout") == [Finding(A, Fault.TIMEOUT)]


def test_what_is_nobodys_fault_is_none() -> None:
    overflow = "upstream_reset_before_response_started{overflow}"
    assert found(A, 1, 503, 128, overflow) == []
    assert found("", 0, 503, 2, "no_healthy_upstream") == []
    assert found("", 0, 413, 0, "request_payload_too_large") == []
    assert found(A, 1, 403, 0, "ext_authz_denied") == []
