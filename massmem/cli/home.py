"""Where massmem keeps its own files."""

from pathlib import Path

from massmem.errors import HomeError

_HINT = "set HOME to a folder that you may write to"


def massmem_home() -> Path:
    """`~/.massmem`, which may not exist yet.

    Raises:
        HomeError: there is no home directory, or HOME is not an absolute path.
    """
    try:
        home = Path("~").expanduser()
    except RuntimeError as e:
        raise HomeError("your home directory is unknown", _HINT) from e
    if not home.is_absolute() or home == Path(home.anchor):
        raise HomeError(f"HOME={str(home)!r} is not a home directory", _HINT)
    return home / ".massmem"
