"""Certificates that are made when a test wants them."""

from pathlib import Path

import trustme

NAME = "router.test"


class Authority:
    """Somebody who signs, and the folder of what was signed."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._ca = trustme.CA()
        self.ca = folder / "ca.pem"
        self._ca.cert_pem.write_to_path(self.ca)

    def sign(self, who: str) -> tuple[Path, Path]:
        """A new certificate and its key, in place of former ones of the same name."""
        made = self._ca.issue_cert(NAME, "127.0.0.1")
        cert, key = self._folder / f"{who}.pem", self._folder / f"{who}.key"
        made.private_key_pem.write_to_path(key)
        cert.write_bytes(b"".join(each.bytes() for each in made.cert_chain_pems))
        return cert, key
