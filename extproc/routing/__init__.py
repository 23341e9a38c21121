"""Strategies and the decision they make. Pure."""

from extproc.routing.model import Candidate, Decision, Mode, Policy, Reason, Strategy
from extproc.routing.rendezvous import rendezvous
from extproc.routing.strategies import RANKED, Choice, Question, choose

__all__ = [
    "RANKED",
    "Candidate",
    "Choice",
    "Decision",
    "Mode",
    "Policy",
    "Question",
    "Reason",
    "Strategy",
    "choose",
    "rendezvous",
]
