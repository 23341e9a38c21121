"""Who is in a pool."""

from extproc.replicas.observation import Observed
from extproc.replicas.source import Candidates, Listed, Service, Source, static, subset

__all__ = ["Candidates", "Listed", "Observed", "Service", "Source", "static", "subset"]
