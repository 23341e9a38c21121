"""Request body to prompt bytes, and prompt bytes to checkpoints. Pure."""
