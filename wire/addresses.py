"""Which addresses only this machine can reach."""

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Of an address, or of the one name that always is one."""
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback
