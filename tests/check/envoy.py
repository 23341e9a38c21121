"""The judge of what is valid: Envoy itself."""

import subprocess
from pathlib import Path

from extproc.lab.stack import envoy_binary


def refusal(path: Path) -> str:
    """What Envoy has against a configuration; empty if it takes it."""
    result = subprocess.run(
        [envoy_binary(), "--mode", "validate", "--config-path", path],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return "" if result.returncode == 0 and "OK" in result.stdout else result.stderr
