"""A model that is opened in a thread when it is first needed, and shared from then on."""

import asyncio
from collections.abc import Callable

from massmem.memory.extraction.mem0_models import OpenModel


class OpenedOnce:
    """Safe to use from several tasks of one event loop. open_: blocking; when it raises, it is tried again."""

    def __init__(self, open_: Callable[[], OpenModel]) -> None:
        self._open = open_
        self._model: OpenModel | None = None
        self._lock = asyncio.Lock()

    async def get(self) -> OpenModel:
        async with self._lock:
            if self._model is None:
                self._model = await asyncio.to_thread(self._open)
            return self._model

    async def close(self) -> None:
        """Close its connections; a request that is under way fails."""
        async with self._lock:
            if self._model is not None:
                await asyncio.to_thread(self._model.close)
                self._model = None
