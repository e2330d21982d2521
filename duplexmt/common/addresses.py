"""IP addresses as they are written."""

import ipaddress


def ip_address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The IP address a text stands for; None for other names."""
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def is_loopback(name: str) -> bool:
    """Whether an address is this machine's own."""
    address = ip_address(name)
    return address is not None and address.is_loopback
