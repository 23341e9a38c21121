"""What engines' reports mean for a choice."""

from hypothesis import given
from hypothesis import strategies as st

from extproc.affinity import MemoryStore
from extproc.replicas.engine.engines import ADAPTER_TOKENS, TOPIC, Engines
from extproc.replicas.engine.report import Report, report_of
from extproc.routing import Policy
from extproc.routing.standing import MOST_QUEUED

A, B, C = "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"
DECODE = 64


def engines_of(store: MemoryStore, **reports: Report) -> Engines:
    for address, report in zip((A, B, C), reports.values(), strict=False):
        store.post("pool", TOPIC + address, report.text(), ttl_s=60)
    return Engines("pool", store)


def queued(engines: Engines, model: str = "") -> dict[str, int]:
    found = engines.standings((A, B, C), model)
    assert all(standing.weight_milli == 1000 for standing in found.values())
    return {address: standing.queued_tokens for address, standing in found.items()}


def test_what_others_sent_weighs_like_what_we_send() -> None:
    busy = Report(foreign_running=2, foreign_waiting=3, request_tokens=1000)
    assert queued(engines_of(MemoryStore(), a=busy, b=Report(running=9))) == {
        A: 3000 + 5 * DECODE,
    }


def test_a_loaded_adapter_is_preferred() -> None:
    engines = engines_of(MemoryStore(), a=Report(adapters=("sql",)), b=Report(adapters=("x",)))
    assert queued(engines, "sql") == {B: ADAPTER_TOKENS, C: ADAPTER_TOKENS}
    assert queued(engines, "base") == {}


def test_nothing_holds_longer_than_it_was_told() -> None:
    now = [0]
    store = MemoryStore(clock=lambda: now[0])
    engines = engines_of(store, a=Report(foreign_running=1, memory_tokens=5000, drain_rate=9))
    policy = Policy()
    assert engines.applied(policy).prefill_rate == 9
    now[0] += 61_000_000
    assert queued(engines) == {}
    assert engines.applied(policy) == policy


def test_the_smallest_cache_counts_where_no_size_is_set() -> None:
    reports = {"a": Report(memory_tokens=9000), "b": Report(memory_tokens=5000), "c": Report()}
    engines = engines_of(MemoryStore(), **reports)
    assert engines.applied(Policy()).cache_tokens == 5000
    assert engines.applied(Policy(cache_tokens=7)).cache_tokens == 7


def test_the_rate_of_queues_replaces_what_was_learned_and_a_least_rate_lifts_it() -> None:
    least = Report(least_rate=30_000)
    assert engines_of(MemoryStore(), a=least).applied(Policy()).prefill_rate == 30_000
    assert engines_of(MemoryStore(), a=Report(least_rate=9)).applied(Policy()) == Policy()
    drained = {"a": Report(drain_rate=5000), "b": Report(drain_rate=7000), "c": least}
    assert engines_of(MemoryStore(), **drained).applied(Policy()).prefill_rate == 6000


@given(st.text(max_size=200) | st.builds(lambda n: Report(foreign_waiting=n).text(), st.integers()))
def test_no_notice_is_a_fault_of_ours(text: str) -> None:
    store = MemoryStore()
    store.post("pool", TOPIC + A, text, ttl_s=60)
    engines = Engines("pool", store)
    assert all(0 <= tokens <= MOST_QUEUED for tokens in queued(engines, "m").values())
    engines.applied(Policy())


def test_a_report_survives_the_board() -> None:
    report = Report("vllm", running=3, kv_permille=250, adapters=("a", "b"), hit_tokens=10**12)
    assert report_of(report.text()) == report
    assert report_of('{"running":-1,"waiting":true,"engine":7,"adapters":[1,"x"],"new":1}') == (
        Report(adapters=("x",))
    )
