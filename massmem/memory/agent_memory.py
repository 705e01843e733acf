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
        first = len({m.message_ids for m in await memory.list(Selection(self._session, kind="episode"), _ALL)})
        read = [
            RecordedMessage(
                "user" if message["role"] == "user" else "assistant", message["content"],
                make_message_id(self._session, first + i), now(),
            )
            for i, message in enumerate(message for message in messages if message["role"] != "system")
        ]  # fmt: skip
        authors = [USER if message.role == "user" else self._agent for message in read]
        await memory.record(
            [
                Episode(self._session, m.message_id, first + i, turn, author, m.text, m.created_at)
                for i, (m, author) in enumerate(zip(read, authors, strict=True))
            ]
        )
        await memory.sync()
        known = memory.get_known_facts()
        async with open_extractor(self._config.persistent_memory.llm, massmem_home(), known) as extractor:
            if extractor is None:
                return 0
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
