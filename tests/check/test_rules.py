"""Every rule finds its mistake, on the right line, and nothing in what is right."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.check.checking import check, mend
from extproc.check.findings import RULES, Finding
from extproc.check.nodes import UnreadableError, camel
from tests.check.envoy import refusal
from tests.check.planted import ENVOY_TAKES, FOLDER, all_files, expected

EXT_PROC = "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3"
SHIPPED = Path(__file__).parents[2] / "envoy"


def found(path: str, text: str) -> list[Finding]:
    return check({path: text}).findings


@pytest.mark.parametrize("name", all_files())
def test_finds_what_is_planted_and_nothing_else(name: str) -> None:
    text = (FOLDER / name).read_text()

    assert Counter((each.line, each.rule) for each in found(name, text)) == expected(text)


def test_a_mistake_is_planted_for_every_rule() -> None:
    planted = {rule for name in all_files() for _, rule in expected((FOLDER / name).read_text())}

    assert planted == set(RULES)


@pytest.mark.parametrize("name", ENVOY_TAKES)
def test_envoy_accepts_what_is_planted(name: str) -> None:
    assert refusal(FOLDER / name) == ""


@pytest.mark.parametrize(
    "path", sorted(SHIPPED.rglob("*.yaml")), ids=lambda path: str(path.relative_to(SHIPPED))
)
def test_nothing_in_what_is_shipped(path: Path) -> None:
    assert found(str(path), path.read_text()) == []


@pytest.mark.parametrize("name", all_files())
def test_mending_leaves_only_what_a_person_must_decide(name: str) -> None:
    text = (FOLDER / name).read_text()
    before = found(name, text)

    mended = mend({name: text})[name]

    after = found(name, mended)
    assert [each.rule for each in after if each.edits] == []
    assert {each.rule for each in after} <= {each.rule for each in before if not each.edits}
    comments = [line for line in text.splitlines() if line.startswith("#")]
    assert set(comments) <= set(mended.splitlines())


@pytest.mark.parametrize("name", ENVOY_TAKES)
def test_envoy_accepts_what_is_mended(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(mend({name: (FOLDER / name).read_text()})[name])

    assert refusal(path) == ""


def camel_cased(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key if "." in key or "@" in key else camel(key): camel_cased(each)
            for key, each in value.items()
        }
    return [camel_cased(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("indent", [None, 2], ids=["one line", "indented"])
@pytest.mark.parametrize("name", ENVOY_TAKES)
def test_json_in_camel_case_is_read_and_mended_alike(
    name: str, indent: int | None, tmp_path: Path
) -> None:
    text = (FOLDER / name).read_text()
    data = json.dumps(camel_cased(yaml.safe_load(text)), indent=indent)

    assert Counter(each.rule for each in found("envoy.json", data)) == Counter(
        each.rule for each in found(name, text)
    )
    mended = mend({"envoy.json": data})["envoy.json"]
    assert [each.rule for each in found("envoy.json", mended) if each.edits] == []
    json.loads(mended)
    path = tmp_path / "envoy.json"
    path.write_text(mended)
    assert refusal(path) == ""


def test_the_cure_of_a_setting_is_the_routers_own() -> None:
    text = (FOLDER / "first_try.yaml").read_text()
    cures = {each.message: each.cure for each in found("f", text) if each.rule == "bad-setting"}

    assert cures["unknown key x-prefix-strateg"] == (
        "unknown key, ignored: did you mean x-prefix-strategy?"
    )
    assert "greater than or equal to 1024" in cures["x-prefix-length: 100"]
    assert "x-prefix-strategy, value: kv_aware" in mend({"f": text})["f"]


def test_files_are_one_configuration() -> None:
    """Listeners in one file, clusters in another, as with LDS and CDS."""
    whole = yaml.safe_load((FOLDER / "first_try.yaml").read_text())["static_resources"]
    resources = {
        kind: yaml.safe_dump({"resources": whole[kind]}, sort_keys=False)
        for kind in ("listeners", "clusters")
    }

    both = Counter(each.rule for each in check(resources).findings)

    text = (FOLDER / "first_try.yaml").read_text()
    assert both == Counter(each.rule for each in found("f", text))
    alone = {each.rule for each in found("lds.yaml", resources["listeners"])}
    assert "router-cluster-missing" not in alone
    assert "fails-closed" in alone


def test_another_ext_proc_filter_is_not_ours() -> None:
    text = (SHIPPED / "standalone.yaml").read_text()
    other = f"""\
          - name: other
            typed_config:
              "@type": {EXT_PROC}.ExternalProcessor
              grpc_service: {{envoy_grpc: {{cluster_name: waf}}}}
"""
    place = "          - name: envoy.filters.http.router\n"

    assert found("f", text.replace(place, other + place)) == []


def test_a_disabled_route_is_left_alone() -> None:
    text = (SHIPPED / "standalone.yaml").read_text()
    route = """\
              - match: {prefix: "/health"}
                route: {cluster: prefix-extproc}
"""
    off = f"""\
                typed_per_filter_config:
                  envoy.filters.http.ext_proc:
                    "@type": {EXT_PROC}.ExtProcPerRoute
                    disabled: true
"""
    place = '              - match: {prefix: "/"}\n'

    rules = {each.rule for each in found("f", text.replace(place, route + place))}
    assert {"route-timeout", "no-override-host"} <= rules
    assert found("f", text.replace(place, route + off + place)) == []


def test_an_envoy_yaml_in_a_config_map_is_found_at_its_lines() -> None:
    inner = (FOLDER / "first_try.yaml").read_text()
    head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: envoy}\ndata:\n  envoy.yaml: |\n"
    outer = head + "".join(f"    {line}\n" for line in inner.splitlines())

    places = [(each.rule, each.line, each.column) for each in found("f", outer)]

    assert places == [(each.rule, each.line + 5, each.column + 4) for each in found("f", inner)]
    assert mend({"f": outer})["f"] == outer


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_nothing_that_is_yaml_makes_it_fail(data: st.DataObject) -> None:
    """Values of wrong kinds, at any place of a file."""
    lines = (SHIPPED / "standalone.yaml").read_text().splitlines()
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(lines) - 1))
        head, colon, _ = lines[place].partition(":")
        junk = data.draw(st.sampled_from(["", " 5", " []", " {}", " [{a: 1}]", " ~", " {x: {}}"]))
        lines[place] = head + colon + junk if colon else head
    texts = {"f": "\n".join(lines)}

    try:
        check(texts)
    except UnreadableError:
        return
    check(mend(texts))


def test_a_gateways_picker_may_have_full_duplex() -> None:
    text = (SHIPPED / "standalone.yaml").read_text()
    streamed = "request_body_mode: FULL_DUPLEX_STREAMED"
    duplex = text.replace(
        "request_body_mode: BUFFERED_PARTIAL",
        f"{streamed}\n                response_body_mode: FULL_DUPLEX_STREAMED",
    )
    setting = "- {key: x-prefix-strategy, value: kv_aware}"
    picker = duplex.replace(setting, "- {key: x-prefix-protocol, value: epp}")

    assert [each.rule for each in found("f", duplex)] == [
        "full-duplex",
        "retries-double-bytes",
        "response-body-sent",
    ]
    assert [each.rule for each in found("f", picker)] == ["retries-double-bytes"]


@pytest.mark.parametrize(
    ("name", "flagged"),
    [
        ("llama-3-70b", True),
        ("Qwen3-32B", True),
        ("qwen2.5-coder", True),
        ("deepseek-v3", True),
        ("gpt-oss-120b", True),
        ("qwen3.5-7b", False),
        ("glm-4.6", False),
        ("kimi-k2", False),
        ("replicas", False),
    ],
)
def test_a_models_name_tells_where_its_template_has_tools(name: str, flagged: bool) -> None:
    text = (SHIPPED / "standalone.yaml").read_text()
    setting = "- {key: x-prefix-strategy, value: kv_aware}"
    pool = text.replace(setting, f"- {{key: x-prefix-pool, value: {name}}}")
    settled = text.replace(setting, f"{setting}\n{' ' * 16}- {{key: x-prefix-tools, value: first}}")

    assert [each.rule for each in found("f", pool)] == (["tools-place"] if flagged else [])
    assert found("f", settled) == []
