"""What a client sent to the real stack, for the simulator to do again."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

from extproc.lab.replica.cache import chain_hashes
from extproc.lab.replica.openai import output_bytes, prompt_tokens, read_generation
from extproc.lab.simulator import calls
from extproc.lab.workload import Conversation, Workload

Place = tuple[int, int]
"""Number of a conversation in its workload, and of a turn in it."""


class Replay:
    """A router of the simulator that chooses what was chosen before.

    Args:
        served: Place of a request in its workload to the number of the replica.
    """

    def __init__(self, served: Mapping[Place, int]) -> None:
        self._served = served
        self._places: dict[calls.Call, Place] = {}

    def know(self, call: calls.Call, place: Place) -> None:
        """Hear which request a call is."""
        self._places[call] = place

    def choose(self, call: calls.Call, _members: Sequence[int]) -> int:
        """See ``Router.choose``. What was not sent before goes to the first."""
        return self._served.get(self._places[call], 0)

    def first_token(self, call: calls.Call) -> None:
        """Nothing to learn."""

    def ended(self, call: calls.Call) -> None:
        """Nothing to learn."""

    def left(self, replica: int) -> None:
        """Nothing to learn."""


def as_calls(
    work: Workload, know: Callable[[calls.Call, Place], None] = lambda _call, _place: None
) -> calls.Workload:
    """The simulator's form of what a client sends, with the answers that it will get.

    Args:
        work: What a client sends.
        know: Called with each call, and its place in the workload.
    """
    numbered = sorted(enumerate(work.conversations), key=lambda each: each[1].at_s)
    first = (_chained(work, each, number, know) for number, each in numbered)
    return calls.Workload(work.name, first, work.requests)


def _chained(
    work: Workload,
    conversation: Conversation,
    number: int,
    know: Callable[[calls.Call, Place], None],
) -> calls.Call:
    turns = list(_turns(work, conversation))
    for at, turn in enumerate(turns):
        know(turn, (number, at))
    for turn, following in itertools.pairwise(turns):
        turn.then = conversation.think_s, following
    return turns[0]


def _turns(work: Workload, conversation: Conversation) -> Iterator[calls.Call]:
    answers: list[bytes] = []
    for number in range(len(conversation.turns)):
        body = work.body(conversation, number, [answer.decode() for answer in answers])
        generation = read_generation(body, chat=True)
        prompt = generation.prompts[0]
        answers.append(output_bytes(generation.output_tokens))
        yield calls.Call(
            conversation.at_s,
            chain_hashes(prompt + answers[-1], generation.salt),
            prompt_tokens(prompt),
            generation.output_tokens,
        )
