"""Addresses as text. Imports nothing: a health check has a process of its own."""


def split_host_port(text: str) -> tuple[str, int]:
    """``host:port`` or ``[ipv6]:port`` in its two parts.

    Raises:
        ValueError: If it is neither.
    """
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not bare or (":" in bare and bare == host):
        raise ValueError("write host:port, or [ipv6]:port")
    if not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ValueError("the port must be a number from 0 to 65535")
    return bare, int(port)


def join_host_port(host: str, port: int) -> str:
    """The opposite of ``split_host_port``."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
