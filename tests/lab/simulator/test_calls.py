from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.lab.simulator.calls import Blocks, Call, fingerprint
from extproc.prompt.checkpoints import checkpoint_positions


def test_ids_are_never_handed_out_twice() -> None:
    blocks = Blocks()
    assert not set(blocks.fresh(10)) & set(blocks.fresh(10))


def test_a_text_shares_the_whole_blocks_of_its_head() -> None:
    blocks = Blocks()
    head = blocks.fresh(62)  # 1,000 tokens have 62 whole blocks
    chain = blocks.extend(head, 1000, 1100)
    assert len(chain) == 68
    assert chain[:62] == list(head)
    assert not set(chain[62:]) & set(head)


def test_a_fingerprint_has_the_checkpoints_of_as_many_bytes() -> None:
    chain = range(1, 1000)
    print_ = fingerprint(Call(0.0, chain, prompt_tokens=5000, output_tokens=1))
    assert print_.positions == checkpoint_positions(20_000)
    assert print_.tokens == tuple(position // 4 for position in print_.positions)
    assert print_.total_tokens == 5000
    # 256 bytes are 64 tokens, so the fourth block's end.
    assert print_.hashes[0] == (4).to_bytes(16, "little") == print_.tie
    assert print_.sticky == (64).to_bytes(16, "little")


def test_prompts_without_a_whole_block_are_all_different() -> None:
    first, second = (fingerprint(Call(0.0, (), 10, 1, number=number)) for number in range(2))
    assert first.tie != second.tie
    assert first.hashes == ()


def test_what_is_not_known_of_a_prompt_has_no_checkpoints() -> None:
    known = fingerprint(Call(0.0, range(1, 9), prompt_tokens=5000, output_tokens=1))
    assert known.tokens == (64, 128)
    assert known.total_tokens == 5000
    assert fingerprint(Call(0.0, (), 5000, 1)).hashes == ()


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 3000), st.integers(1, 3000), st.integers(1, 3000))
def test_prompts_share_the_checkpoints_of_their_common_blocks(
    head: int, first: int, second: int
) -> None:
    blocks = Blocks()
    shared = blocks.fresh(head // 16)
    prints = [
        fingerprint(Call(0.0, blocks.extend(shared, head, head + own), head + own, 1))
        for own in (first, second)
    ]
    common = len(checkpoint_positions(head // 16 * 64))
    assert prints[0].hashes[:common] == prints[1].hashes[:common]
    assert not set(prints[0].hashes[common:]) & set(prints[1].hashes[common:])
