"""Addresses and keys as people write them."""

import re
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

from massmem.core.text import trim_value

_WITH_IPV4 = tuple(map(ip_network, ("64:ff9b::/96", "::ffff:0:0/96", "::/96")))
_DRIVER = re.compile(r"(?i)(?:postgres(?:ql)?|sqlite)(?:\+\w+)?(?=:)")


def clean_store_url(url: str) -> str:
    """Return the URL of a store as massmem writes it: without what is around it and without a driver.

    `postgres://` and `postgresql+asyncpg://` are `postgresql://`, `sqlite+aiosqlite://` is `sqlite://`.
    """
    kind = _DRIVER.match(url := trim_value(url))
    if kind is None:
        return url
    return ("sqlite" if kind[0].lower().startswith("sqlite") else "postgresql") + url[kind.end() :]


def complete_address(address: str) -> str:
    """Return the address of a server; with http:// where it is of this network and people leave that out."""
    address = trim_value(address)
    if "://" in address or not is_server_address(f"http://{address}"):
        return address
    return f"http://{address}" if is_near(f"http://{address}") else address


def is_near(url: str) -> bool:
    """Whether an address is of this machine or network, as far as it says so itself."""
    try:
        return is_loopback(url) or is_near_ip(urlsplit(url).hostname or "")
    except ValueError:
        return False


def is_near_ip(address: str) -> bool:
    """Whether an IP address, or the one within it, is of this machine or network, or of none. Raises ValueError."""
    ip = ip_address(address.partition("%")[0])
    if isinstance(ip, IPv6Address) and (ip.sixtofour or any(ip in network for network in _WITH_IPV4)):
        ip = ip.sixtofour or IPv4Address(int(ip) & 0xFFFFFFFF)
    return not ip.is_global or ip.is_multicast or ip.is_reserved


def is_server_address(url: str) -> bool:
    """Return whether requests can be sent there."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0 and " " not in url
    except ValueError:
        return False


def is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        ip = ip_address(host)
    except ValueError:
        return f".{host.rstrip('.')}".endswith(".localhost")
    ip = (ip.ipv4_mapped if isinstance(ip, IPv6Address) else None) or ip
    return ip.is_loopback or ip.is_unspecified


_PLACEHOLDER = re.compile(
    r"<.*>|\[.*\]|\{.*\}|(?:[a-z\d]{1,6}[-_])*[a-z\d]{0,6}?(?:x{3,}|\*{3,}|\.{3,})(?:[-_]x+)*"
    r"|(?:[a-z\d]{1,12}[-_])*(?:your|insert|enter|paste|put|replace|add|change)[-_ ]?(?:[a-z\d]+[-_ ])*"
    r"(?:key|token|secret|me|this|here|it)(?:[-_ ]?here)?|(?:[a-z\d]+_)*api[-_]?key|todo|placeholder",
    re.IGNORECASE,
)
"""Words of guides and examples in place of a key; not those that servers without keys ask for, such as EMPTY."""


def find_key_problem(key: str, *, required: bool = True) -> str:
    """Return why this is no key, "" when it may be one. required: a server that wants no key takes any word."""
    if re.match(r"\$|%\w+%$", key):
        return "is the name of a variable, not its value"
    if re.match(r"bearer\s", key, re.IGNORECASE):
        return "begins with 'Bearer', which is no part of it"
    if required and _PLACEHOLDER.fullmatch(key):
        return "is a placeholder from an example"
    if not all("!" <= char <= "~" and char not in "\"'`" for char in key):
        return "has characters that no key has (spaces, line breaks, quotes, letters beyond ASCII)"
    return ""
