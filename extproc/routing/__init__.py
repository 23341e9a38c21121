"""Strategies and the decision they make. Pure."""

from extproc.routing.model import Decision, Mode, Policy, Reason, Strategy
from extproc.routing.prefill_rate import LearnedRate
from extproc.routing.rendezvous import rendezvous
from extproc.routing.strategies import RANKED, Choice, Question, choose

__all__ = [
    "RANKED",
    "Choice",
    "Decision",
    "LearnedRate",
    "Mode",
    "Policy",
    "Question",
    "Reason",
    "Strategy",
    "choose",
    "rendezvous",
]
