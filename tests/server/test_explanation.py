"""The header that tells why."""

import re

from hypothesis import given
from hypothesis import strategies as st

from extproc.routing import Decision, Reason, Strategy, Weighed
from extproc.server.explanation import MOST, explain
from tests.server.conftest import STATIC, Serve
from tests.server.messages import JSON, chat, request_body, request_headers, response_headers
from tests.server.test_stream import end, exchange

ITEM = r'"[0-9.:\[\]a-f]+"(;[a-z_]+=-?(\d{1,12}\.\d{3}|\d{1,15}))+'
HEADER = re.compile(rf"[a-z_]+(;[a-z_]+(=[a-z0-9_]+)?)+(, {ITEM})*")
ASKED = {**JSON, "x-prefix-explain": "1"}
ALLOWED = (*STATIC, ("x-prefix-explain", "on"))


def test_the_chosen_one_comes_first_and_costs_are_in_tokens() -> None:
    decision = Decision(
        ("10.0.0.2:80", "10.0.0.1:80"),
        Reason.MATCHED,
        2048,
        2048,
        2100,
        weighed=(
            Weighed("10.0.0.1:80", 0, 10, 0, 3_160_000),
            Weighed("10.0.0.2:80", 1, 0, 2048, 142_500),
        ),
    )

    assert explain(decision, Strategy.KV_AWARE) == (
        "matched;strategy=kv_aware;tokens=2100, "
        '"10.0.0.2:80";matched=2048;pending=0;in_flight=1;cost=142.500, '
        '"10.0.0.1:80";matched=0;pending=10;in_flight=0;cost=3160.000'
    )


def test_without_a_comparison_there_is_no_cost() -> None:
    weighed = (Weighed("10.0.0.1:80", 0, 0, 0, None),)
    decision = Decision(("10.0.0.1:80",), Reason.BASELINE, shared=False, weighed=weighed)

    assert explain(decision, Strategy.RANDOM) == (
        'baseline;strategy=random;tokens=0;alone, "10.0.0.1:80";matched=0;pending=0;in_flight=0'
    )


counts = st.integers(0, 10**9)
weighed = st.builds(
    Weighed,
    st.integers(0, 255).map("[2001:db8:ffff:ffff:ffff:ffff:ffff:ff{:02x}]:65535".format),
    counts,
    counts,
    counts,
    st.one_of(st.none(), st.integers(-(10**14), 10**14)),
)


@given(st.lists(weighed, max_size=200), st.sampled_from(Strategy), st.booleans())
def test_it_is_a_list_of_structured_fields_of_bounded_length(
    found: list[Weighed], strategy: Strategy, shared: bool
) -> None:
    ranked = [each.replica for each in found[:3]]
    text = explain(Decision(ranked, Reason.COLD, shared=shared, weighed=found), strategy)

    assert HEADER.fullmatch(text)
    assert len(text) < 4096
    assert text.count('"') <= 2 * MOST


async def test_who_asks_is_told_where_the_pool_allows_it(serve: Serve) -> None:
    served = await serve()
    told = []
    for metadata, headers in ((ALLOWED, ASKED), (ALLOWED, JSON), (STATIC, ASKED)):
        call = served.open(metadata)
        await exchange(call, request_headers(headers), request_body(chat("Hello. " * 200)))
        [reply] = await exchange(call, response_headers("10.0.0.1:80"))
        told.append(
            {
                option.header.key: option.header.raw_value.decode()
                for option in reply.response_headers.response.header_mutation.set_headers
            }
        )
        await end(call)

    assert told[0]["x-prefix-explain"].startswith("cold;strategy=kv_aware;tokens=")
    assert told[0]["x-prefix-explain"].count('"10.0.0.') == 3
    assert "Hello" not in told[0]["x-prefix-explain"]
    assert told[1:] == [{}, {}]
