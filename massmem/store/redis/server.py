"""The server of a Redis store: its address and what it means when it cannot be used."""

import re
from urllib.parse import parse_qs, urlsplit

from massmem.errors import InputError, StoreDamagedError, StoreError, StoreUnavailable

_EXAMPLE = "redis://USER:PASSWORD@HOST:6379/0"
_OPTIONS: dict[str, set[str]] = {
    "redis": set(),
    "rediss": {"ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname"},
    "unix": {"db"},
}
_AGAIN = "run the same command again when it is back"
_SINGLE = "set store.url to a single server"
_MEMORY = "raise its maxmemory, delete sessions, or lower store.ttl; nothing of this step was stored"
# In this order. The code of an error may stand anywhere in its text, or in the name of its class alone.
_PROBLEMS: tuple[tuple[str, type[StoreError], str, str], ...] = (
    (r"\bOOM\b|OutOfMemory", StoreError, "{name} is out of memory", _MEMORY),
    (
        r"\bMISCONF\b",
        StoreError,
        "{name} cannot write to its disk and takes nothing more",
        "look into its log, free some space there and run the same command again; nothing of this step was stored",
    ),
    (r"\bREADONLY\b|ReadOnly", StoreError, "{name} is a read-only replica", "set store.url to the primary server"),
    (
        r"\bNOPERM\b|NoPermission|no permissions",
        StoreError,
        "the user of {name} may not do that: {reason}",
        "it needs: ~massmem:* +@read +@write +@scripting +@connection +time, and +info +config|get to warn of risks",
    ),
    (
        r"\bNOAUTH\b|\bWRONGPASS\b|Authentication(Error|WrongNumber| required)|AUTH .*called without",
        StoreError,
        "{name} does not let us in",
        "check user and password in store.url; REDIS_PASSWORD is read as well",
    ),
    (
        r"\bMOVED\b|MovedError|\bCROSSSLOT\b|CrossSlot|\bCLUSTERDOWN\b|ClusterDown",
        StoreError,
        "{name} is a cluster",
        "use a single server",
    ),
    (r"DB index is out of range", StoreError, "{name} has no such database", "most servers have 0 to 15"),
    (
        r"\bWRONGTYPE\b",
        StoreDamagedError,
        "{name} holds keys of another program whose names begin with massmem:",
        "give massmem a database of its own, as in redis://HOST/1",
    ),
    (r"\bLOADING\b|BusyLoading", StoreUnavailable, "{name} is starting", _AGAIN),
    (r"\bBUSY\b", StoreError, "{name} is busy with another program", "run the same command again later"),
)
_AWAY = ("ConnectionError", "TimeoutError", "OSError", "ConnectionRefusedError", "FileNotFoundError", "gaierror")


def check_address(url: str) -> None:
    """Raises InputError for what is no URL of a Redis server. The message shows nothing of it: it may hold a password.

    `redis://USER:PASSWORD@HOST:PORT/DATABASE`, `rediss://` for TLS, `unix:///path/to/socket?db=DATABASE`.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
        given = parse_qs(parts.query)
    except ValueError as e:
        raise no_address() from e
    if "@" in parts.path + parts.query or parts.fragment:
        raise InputError(
            "store.url: a special character of the password must be written as its code",
            "%40 for @, %2F for /, %3A for :, %3F for ?, %23 for #, %25 for %",
        )
    socket = parts.scheme == "unix"
    if (socket and not parts.path) or (not socket and not re.fullmatch(r"/?\d{0,9}", parts.path)):
        raise no_address()
    allowed = _OPTIONS[parts.scheme] | {"client_name"}
    if unknown := sorted(set(given) - allowed):
        raise InputError(f"store.url: {unknown[0]!r} is no option here", f"there are: {', '.join(sorted(allowed))}")


def no_address() -> InputError:
    return InputError("store.url is no URL of a Redis server", f"write it as {_EXAMPLE}")


def name_of(url: str) -> str:
    """How the server is called in messages: without password and options."""
    parts = urlsplit(url)
    user = f"{parts.username}@" if parts.username else ""
    place = f"{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}"
    return f"{parts.scheme}://{user}{place}{parts.path}"


def store_error(error: BaseException, name: str) -> StoreError:
    """The error to show for one of redis-py's."""
    reason = " ".join(str(error).split())[:200].rstrip(".")
    for pattern, kind, message, hint in _PROBLEMS:
        if re.search(pattern, f"{type(error).__name__} {reason}"):
            return kind(message.format(name=name, reason=reason), hint)
    if any(each.__name__ in _AWAY for each in type(error).__mro__):
        said = f": {reason}" if reason else ""
        return StoreUnavailable(
            f"{name} cannot be reached{said}",
            f"check that the server runs; {_AGAIN}. What it acknowledged is kept as far as it writes to its disk",
        )
    return StoreError(f"{name} refused a command: {reason}", "look into the log of the server")
