"""Names, types and labels of the metrics, as the documentation has them."""

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from extproc.affinity.store import ReplicaState, StoreStatus
from extproc.prompt.model import Unreadable
from extproc.replicas.endpoint import Endpoint
from extproc.replicas.engine.report import Report
from extproc.replicas.faults import Fault
from extproc.replicas.health import Ejection, Fitness, ReplicaHealth
from extproc.replicas.watch import SourceStatus, State
from extproc.routing import Reason
from extproc.server.metrics import Metrics
from extproc.server.stats import MAX_REPLICAS, Outcome, Stats

DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"
STATUS = StoreStatus("redis", failures={"timeout": 3}, breaker="open", shared=False, entries=7)
SOURCE = SourceStatus("dns", State.STALE, 3.5, "no answer", 2, (Endpoint("10.0.0.1:80"),))


def busy_stats() -> Stats:
    """Something of everything."""
    stats = Stats()
    pool = stats.pool("llm")
    pool.reasons[Reason.MATCHED] += 1
    pool.outcomes[Outcome.FIRST] += 1
    pool.ejections[Fault.HANG] += 1
    pool.rejected[Reason.NO_SUBSET] += 1
    pool.replica("10.0.0.1:80").passed_over += 1
    pool.problems[Unreadable.NOT_UTF8] += 1
    stats.setting_errors["x-prefix-ttl"] += 1
    stats.violations["headers repeated"] += 1
    stats.limits.hit("--max-pools", "")
    stats.errors["KeyError"] += 1
    stats.log_lines["written"] += 1
    return stats


def rendered() -> dict[str, tuple[str, set[str]]]:
    """Name to type and labels."""
    metrics = Metrics(busy_stats(), lambda: STATUS, lambda: {"llm": SOURCE})
    text = metrics.render(
        {"llm": {"10.0.0.1:80": ReplicaState()}},
        {"llm": {"10.0.0.1:80": ReplicaHealth(Fitness.WARMING, 500, None)}},
        {"llm": {"10.0.0.1:80": Report("vllm", hit_tokens=3)}},
    )
    found = {}
    for family in text_string_to_metric_families(text.decode()):
        if family.name.startswith("prefix_extproc_"):
            name = family.name + ("_total" if family.type == "counter" else "")
            labels = {label for sample in family.samples for label in sample.labels} - {"le"}
            found[name] = (family.type, labels)
    return found


def documented() -> dict[str, tuple[str, set[str]]]:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) ?\| ", DOCUMENT.read_text(), re.MULTILINE)
    return {name: (kind, set(re.findall(r"\w+", labels))) for name, kind, labels in rows}


def test_the_documentation_has_every_metric() -> None:
    found = {name: about for name, about in rendered().items() if not name.endswith("_created")}

    assert found == documented()


def test_the_documentation_has_every_reason_and_outcome() -> None:
    text = DOCUMENT.read_text()

    assert [word for word in (*Reason, *Outcome) if f"`{word}`" not in text] == []


def test_the_health_of_a_discovery_source() -> None:
    text = Metrics(Stats(), lambda: STATUS, lambda: {"llm": SOURCE}).render({}).decode()

    for name, number in (("up", 0), ("age_seconds", 3.5), ("replicas", 1), ("failures_total", 2)):
        line = f'prefix_extproc_discovery_{name}{{pool="llm",source="dns"}} {float(number)}'
        assert line in text


def test_the_stores_health() -> None:
    text = Metrics(Stats(), lambda: STATUS).render({}).decode()

    assert 'prefix_extproc_store_shared{kind="redis"} 0.0' in text
    assert 'prefix_extproc_store_breaker_open{kind="redis"} 1.0' in text
    assert 'prefix_extproc_store_entries{kind="redis"} 7.0' in text
    assert 'prefix_extproc_store_failures_total{failure="timeout",kind="redis"} 3.0' in text


def test_series_of_replicas_are_bounded() -> None:
    states = {f"10.0.{n // 250}.{n % 250}:80": ReplicaState(in_flight=n) for n in range(1500)}

    text = Metrics(Stats(), lambda: STATUS).render({"llm": states}).decode()

    assert text.count("prefix_extproc_replica_in_flight{") == MAX_REPLICAS


def test_the_weight_of_a_replica_is_what_it_is_given() -> None:
    ejection = Ejection(Fault.ERROR, 2)
    health = {
        "10.0.0.1:80": ReplicaHealth(Fitness.EJECTED, 1000, ejection),
        "10.0.0.2:80": ReplicaHealth(Fitness.NEEDED, 100, ejection),
        "10.0.0.3:80": ReplicaHealth(Fitness.WARMING, 250, None),
        "10.0.0.4:80": ReplicaHealth(Fitness.HEALTHY, 1000, None),
    }
    text = Metrics(Stats(), lambda: STATUS).render({}, {"llm": health}).decode()
    weights = re.findall(r'_replica_weight{pool="llm",replica="(.*?)"} (.*)', text)
    assert [float(weight) for _, weight in weights] == [0.0, 0.1, 0.25, 1.0]
