"""The long memory of one agent, for programs that have a model of their own."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from massmem.config.home import massmem_home
from massmem.config.models import MemoryConfig
from massmem.core.events import now
from massmem.core.ids import make_message_id
from massmem.memory.extraction.extractor import open_extractor
from massmem.memory.extraction.prompts import Origin, RecordedMessage
from massmem.memory.indexed import IndexedMemory
from massmem.memory.opening import open_memory
from massmem.memory.persistent import USER, CompletedTurn, Episode, RecallOptions, Scope, Selection

_ALL = 1_000_000


class AgentMemory:
    """What `massmem.memory.PersistentMemory` is. Not for two tasks at once."""

    def __init__(
        self,
        agent_name: str = "agent",
        session_name: str = "session",
        llm_config: Mapping[str, Any] | None = None,
        embedding_config: Mapping[str, Any] | None = None,
        vector_store_config: Mapping[str, Any] | None = None,
    ) -> None:
        """llm_config, embedding_config, vector_store_config: `llm`, `embedding` and `qdrant` of a configuration.

        Without llm_config messages are remembered word for word, and no facts. Without a place for the index it is in
        a folder that no team uses.

        Raises ValueError: a configuration is wrong.
        """
        place = vector_store_config or {"path": str(massmem_home() / "programs")}
        sections = {"llm": llm_config, "embedding": embedding_config or {}, "qdrant": place}
        self._config = MemoryConfig.model_validate({"persistent_memory": sections})
        self._agent, self._session = agent_name, session_name
        self._memory: IndexedMemory | None = None

    async def record(self, messages: Sequence[Mapping[str, str]], turn: int = 1) -> int:
        """Remember messages, as role and content, and extract facts from them; return how many facts are new.

        turn: of the conversation. What has the role system is left out.

        Raises MemoryUnavailable, and, when the messages are remembered, ProviderError and InputError: no facts are.
        """
        memory = await self._open()
        place = len({m.message_ids for m in await memory.list(Selection(self._session, kind="episode"), _ALL)})
        episodes: list[Episode] = []
        for message in (message for message in messages if message["role"] != "system"):
            author = USER if message["role"] == "user" else self._agent
            message_id = make_message_id(self._session, place)
            episodes.append(Episode(self._session, message_id, place, turn, author, message["content"], now()))
            place += 1
        await memory.record(episodes)
        await memory.sync()
        settings, known = self._config.persistent_memory, memory.get_known_facts()
        async with open_extractor(settings, massmem_home(), known) as extractor:
            if extractor is None:
                return 0
            read = [
                RecordedMessage("user" if e.agent_id == USER else "assistant", e.text, e.message_id, e.created_at)
                for e in episodes
            ]
            extraction = await extractor.extract(read, Origin(self._session, self._agent, turn))
        return await memory.add_facts(extraction.facts)

    async def retrieve(self, query: str, limit: int = 5, previous_winners: Sequence[Mapping[str, Any]] = ()) -> str:
        """Return what the agent remembers that matters for the query, a line each; "" when nothing does.

        previous_winners: agents that won turns, as agent_id and turn: what they said in those is found, too.

        Raises MemoryUnavailable.
        """
        memory = await self._open()
        turns = [CompletedTurn(self._session, winner["turn"], winner["agent_id"]) for winner in previous_winners]
        await memory.complete_turns(turns)
        options = RecallOptions(self._config.retrieval.max_tokens, limit)
        return (await memory.recall(query, Scope(self._session, self._agent, _ALL), options)).text

    async def close(self) -> None:
        """Close the index; the next call opens it again."""
        if self._memory is not None:
            await self._memory.close()
        self._memory = None

    async def _open(self) -> IndexedMemory:
        if self._memory is None:
            self._memory = await open_memory(self._config, massmem_home(), os.environ)
        return self._memory
