"""TLS towards Envoy: certificates from files, read again when they change."""

from pathlib import Path
from typing import NamedTuple

import grpc
import structlog

_log = structlog.get_logger(__name__)


class TlsFiles(NamedTuple):
    """PEM files.

    Attributes:
        cert: The server's certificate, and those between it and its root.
        key: Its private key.
        client_ca: Who signs clients' certificates; empty asks clients for none.
    """

    cert: str
    key: str
    client_ca: str = ""

    def read(self) -> grpc.ServerCertificateConfiguration:
        """The files as they are now.

        Raises:
            OSError: One cannot be read.
            ValueError: One does not hold what it should; the message names it.
        """
        cert = _pem(self.cert, b"CERTIFICATE-----")
        key = _pem(self.key, b"PRIVATE KEY-----")
        client_ca = _pem(self.client_ca, b"CERTIFICATE-----") if self.client_ca else None
        return grpc.ssl_server_certificate_configuration([(key, cert)], client_ca)


def credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """Credentials of a server whose files may change, as certificates are renewed.

    Files that have become unreadable leave the former certificate in use, and are logged once.

    Raises:
        OSError: A file cannot be read.
        ValueError: A file does not hold what it should.
    """
    return grpc.dynamic_ssl_server_credentials(
        files.read(),
        _Renewal(files).fetch,  # type: ignore[arg-type]  # None is allowed: nothing has changed
        require_client_authentication=bool(files.client_ca),
    )


class _Renewal:
    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._seen = self._stamp()

    def fetch(self) -> grpc.ServerCertificateConfiguration | None:
        """What gRPC asks at each handshake: new certificates, or None to keep those that it has."""
        stamp = self._stamp()
        if stamp == self._seen:
            return None
        self._seen = stamp
        try:
            found = self._files.read()
        except (OSError, ValueError) as error:
            _log.warning("renewed TLS files cannot be used, the former stay", error=str(error))
            return None
        _log.info("TLS files were renewed")
        return found

    def _stamp(self) -> tuple[tuple[int, int], ...]:
        return tuple(_identity(Path(each)) for each in self._files if each)


def _identity(path: Path) -> tuple[int, int]:
    try:
        about = path.stat()  # through symbolic links, by which Kubernetes swaps all files at once
    except OSError:
        return 0, 0
    return about.st_mtime_ns, about.st_ino


def _pem(path: str, mark: bytes) -> bytes:
    text = Path(path).read_bytes()
    if mark not in text:
        raise ValueError(f"{path}: no PEM with {mark.decode().rstrip('-').lower()}")
    return text
