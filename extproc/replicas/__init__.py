"""Who is in a pool."""

from extproc.replicas.observation import Observed
from extproc.replicas.source import Candidates, Listed, Service, Source, static
from extproc.replicas.subset import Hint, Subset, hint_of

__all__ = [
    "Candidates",
    "Hint",
    "Listed",
    "Observed",
    "Service",
    "Source",
    "Subset",
    "hint_of",
    "static",
]
