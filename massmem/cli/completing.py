"""What a shell offers while a command is typed. It must be quick, and never an error on somebody's command line."""

from collections.abc import Iterator

_MOST = 50


def session_ids(incomplete: str) -> Iterator[tuple[str, str]]:
    """The newest sessions whose ids begin so, each with what it is about."""
    # Named by options of the run command, whose --help needs none of it.
    from massmem.errors import MassmemError
    from massmem.home import massmem_home
    from massmem.registry import Registry
    from massmem.render.printable import one_line

    try:
        registry = Registry(massmem_home())
        entries = registry.entries() if registry.path.exists() else []
    except MassmemError:
        return
    found = [entry for entry in entries if entry.session_id.startswith(incomplete)]
    for entry in found[:_MOST]:
        yield entry.session_id, one_line(entry.description, 60)
