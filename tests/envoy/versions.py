"""Which Envoy is under test: what some versions lack or do wrong is left out of their tests."""

import re
import subprocess
from functools import cache

from extproc.lab.stack import envoy_binary


@cache
def envoy_version() -> tuple[int, int]:
    """As ``(1, 40)``."""
    said = subprocess.run(
        [envoy_binary(), "--version"], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    found = re.search(r"/(\d+)\.(\d+)\.\d+/", said)
    assert found is not None, said
    return int(found[1]), int(found[2])
