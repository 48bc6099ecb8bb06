"""Loopback addresses, and the local names of this machine."""

from ipaddress import ip_address

LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")  # as in a Host header


def is_loopback(host: str) -> bool:
    """Whether it is a loopback address, or `localhost`."""
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def is_every_address(host: str) -> bool:
    """Whether who listens there listens on all addresses, and who connects there to itself."""
    try:
        return ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False


def host_name(host: str) -> str:
    """A Host header without its port, in lower case."""
    host = host.lower()
    return host if host.endswith("]") else host.rpartition(":")[0] or host


def base_url(host: str, port: int, *, tls: bool = False) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if tls else 'http'}://{shown}:{port}"
