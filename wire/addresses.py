"""Which addresses only this machine can reach, and by which names it calls itself."""

from ipaddress import ip_address

LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")  # as they stand in a Host header


def is_loopback(host: str) -> bool:
    """Of an address, or of the one name that always is one."""
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def host_name(host: str) -> str:
    """A Host header without its port, in small letters."""
    host = host.lower()
    return host if host.endswith("]") else host.rpartition(":")[0] or host
