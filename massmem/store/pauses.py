"""Where the pauses of model servers are kept: in this process, or on a server for all of them."""

import logging

from massmem.core.errors import InputError
from massmem.providers.pauses import LocalPauses, Pauses, SharedPauses

log = logging.getLogger(__name__)


def open_pauses(counted_in: str | None) -> Pauses:
    """Return the pauses that everyone with this `server.limits.counted_in` shares; None: those of this process.

    Imports what it needs: call it in a thread. What cannot be shared is not: the log says why.
    """
    if counted_in is None:
        return LocalPauses()
    try:
        from massmem.store.redis.pauses import RedisPauses

        return SharedPauses(RedisPauses(counted_in))
    except (InputError, ModuleNotFoundError) as e:
        reason = str(e).replace("store.url", "server.limits.counted_in")
        log.warning("rate limits of model servers are not shared: %s", reason)
        return LocalPauses()
