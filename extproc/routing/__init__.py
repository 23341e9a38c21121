"""Strategies and the decision they make. Pure."""

from extproc.routing.apart import Apart, Familiarity
from extproc.routing.model import (
    SHADOW,
    Decision,
    Mode,
    Policy,
    Protocol,
    Reason,
    Strategy,
    Weighed,
)
from extproc.routing.prefill_rate import Evidence, LearnedRate, as_text, from_text
from extproc.routing.rendezvous import rendezvous
from extproc.routing.shedding import limit_of, priority_of
from extproc.routing.standing import FULL, Standing, Standings, apparent, together
from extproc.routing.strategies import RANKED, Choice, Question, choose

__all__ = [
    "FULL",
    "RANKED",
    "SHADOW",
    "Apart",
    "Choice",
    "Decision",
    "Evidence",
    "Familiarity",
    "LearnedRate",
    "Mode",
    "Policy",
    "Protocol",
    "Question",
    "Reason",
    "Standing",
    "Standings",
    "Strategy",
    "Weighed",
    "apparent",
    "as_text",
    "choose",
    "from_text",
    "limit_of",
    "priority_of",
    "rendezvous",
    "together",
]
