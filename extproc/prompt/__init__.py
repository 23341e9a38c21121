"""Request body to prompt bytes, and prompt bytes to checkpoints. Pure."""

from extproc.prompt.checkpoints import checkpoint_positions
from extproc.prompt.fingerprinting import fingerprint
from extproc.prompt.headers import unreadable
from extproc.prompt.reading import read_prompt

__all__ = ["checkpoint_positions", "fingerprint", "read_prompt", "unreadable"]
