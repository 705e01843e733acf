"""mem0's own pipeline over one conversation, with our parts in the places of its model, embedder, store and history.

mem0 decides what happens in which order: what is known is looked up, the model is asked, what it says is stored. Our
parts see to it that nothing is lost or added on the way. Imports mem0: only massmem.memory.extraction.mem0 may import
this, after it has set the environment.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

# mem0 has no type stubs.
from mem0.configs.base import MemoryConfig as Mem0Config  # pyright: ignore[reportMissingTypeStubs]
from mem0.exceptions import LLMError  # pyright: ignore[reportMissingTypeStubs]
from mem0.memory.main import Memory as Mem0  # pyright: ignore[reportMissingTypeStubs]
from mem0.memory.storage import SQLiteManager  # pyright: ignore[reportMissingTypeStubs]
from mem0.utils import spacy_models  # pyright: ignore[reportMissingTypeStubs]

from massmem.config.models import MemoryLlmConfig
from massmem.core.errors import MalformedResponse, MassmemError
from massmem.memory.extraction.facts import clean_fact, is_knowledge, normalised
from massmem.memory.extraction.mem0_failures import failure
from massmem.memory.extraction.mem0_models import OpenModel
from massmem.memory.extraction.mem0_store import IndexStore
from massmem.memory.extraction.prompts import COMPACT_SYSTEM, INSTRUCTIONS, compact_prompt
from massmem.memory.extraction.replies import Reading, Statement, read_reply
from massmem.memory.extraction.task import Chunk, Known, Origin, is_grounded, message_ids, prompt_messages
from massmem.memory.points import USER_ID

_OBSERVATION_DATE = re.compile(r"^(## Observation Date\n)\S+$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Found:
    """What one request gave. duplicates: statements that were known already. complete: as in Reading."""

    statements: tuple[Statement, ...]
    duplicates: int
    complete: bool


def without_downloads() -> None:
    """Keep mem0 from downloading a spaCy model when spaCy is installed."""
    for name in ("_load_failed_full", "_load_failed_lemma"):
        setattr(spacy_models, name, True)


class Reader:
    """Reads one conversation, a chunk at a time; what came before is context for what follows. Blocking, one thread."""

    def __init__(self, model: OpenModel, config: MemoryLlmConfig, origin: Origin, known: Known | None) -> None:
        self._config = config
        self._origin = origin
        self._model = Model(model)
        # mem0 has no types to rely on.
        self._pipeline: Any = Pipeline(self._model, QueryEmbedder(known), IndexStore(known, origin, self._model.learn))

    def read(self, chunk: Chunk) -> Found:
        """What the model finds in it.

        Raises:
            ProviderError: the model could not be asked, or refused, or nothing in its reply can be read.
            MemoryUnavailable: the index cannot be asked what is known.
        """
        said = max(piece.created_at for piece in chunk)
        metadata = {"turn": self._origin.turn, "message_ids": [*message_ids(chunk)], "created_at": said.isoformat()}
        self._model.begin(chunk)
        try:
            ids = {"user_id": USER_ID, "agent_id": self._origin.agent_id, "run_id": self._origin.session_id}
            result = self._pipeline.add(prompt_messages(chunk), metadata=metadata, **ids)
        except LLMError as e:
            raise failure(e.__cause__ or e, self._config) from e
        stored: set[str] = {memory["memory"] for memory in result["results"]}
        new = self._model.new
        kept = tuple(statement for statement in new if statement.text in stored)
        return Found(kept, self._model.duplicates + len(new) - len(kept), self._model.reading.complete)


class Pipeline(Mem0):
    """mem0's Memory for one conversation. Its own constructor would open a model, a store and a file by configuration.

    Its history stays in this process and ends with it: on disk it would keep messages in clear text, out of reach of
    whatever forgets.
    """

    def __init__(self, model: "Model", embedder: "QueryEmbedder", store: IndexStore) -> None:
        self.config = Mem0Config(history_db_path=":memory:")
        self.llm = model
        self.embedding_model = embedder
        self.vector_store = store
        self.db = SQLiteManager(":memory:")
        self.custom_instructions = INSTRUCTIONS
        self.collection_name = "massmem"
        self.api_version = self.config.version
        self.reranker = None
        self._entity_store = None


class Model:
    """mem0's `llm`: reads the reply itself, since mem0 takes one that it cannot read for "nothing to remember"."""

    def __init__(self, model: OpenModel) -> None:
        self._model = model
        self._known: set[str] = set()
        self._chunk: Chunk = ()
        self.reading = Reading(())
        self.new: tuple[Statement, ...] = ()
        self.duplicates = 0

    def begin(self, chunk: Chunk) -> None:
        """What the next request is about."""
        self._chunk = chunk

    def learn(self, text: str) -> None:
        """A fact that need not be found again."""
        self._known.add(normalised(text))

    def generate_response(self, messages: Sequence[Mapping[str, str]], **_: Any) -> str:
        """The model's statements, cleaned, those that are new; in the form that mem0 expects."""
        system, user = (message["content"] for message in messages)
        said = max(piece.created_at for piece in self._chunk).date()
        user = _OBSERVATION_DATE.sub(rf"\g<1>{said}", user)  # mem0 means today, also for an older message
        if self._model.compact:
            system, user = COMPACT_SYSTEM, compact_prompt(user)
        answer = self._model.ask(system, user)
        try:
            self.reading = read_reply(answer.text)
        except MalformedResponse as e:
            if answer.finish == "length":
                raise MalformedResponse(f"the reply was cut off before its first fact ended; {e.message}") from e
            raise
        cleaned = [_cleaned(statement) for statement in self.reading.statements]
        self._keep_new([statement for statement in cleaned if self._is_worth_it(statement)])
        return json.dumps({"memory": [{"text": s.text, "attributed_to": s.attributed_to} for s in self.new]})

    def _is_worth_it(self, statement: Statement) -> bool:
        return is_knowledge(statement.text) and (not self._model.compact or is_grounded(statement, self._chunk))

    def _keep_new(self, statements: Sequence[Statement]) -> None:
        fresh: dict[str, Statement] = {}
        for statement in statements:
            if (key := normalised(statement.text)) not in self._known:
                fresh.setdefault(key, statement)
        self._known |= fresh.keys()
        self.new = tuple(fresh.values())
        self.duplicates = len(statements) - len(fresh)


class QueryEmbedder:
    """mem0's `embedding_model`. Only the search for what is known needs a vector here.

    What is stored gets its own where it is written (PersistentMemory.add_facts); a second one would be paid for twice.
    """

    def __init__(self, known: Known | None) -> None:
        self._known = known

    def embed(self, text: str, memory_action: str | None = None) -> Sequence[float]:
        """The text's vector for a search; empty when there is none to be had: the newest facts do then."""
        if self._known is None or memory_action != "search":
            return ()
        try:
            vector = self._known.embed(text)
        except MassmemError:
            return ()
        return vector if vector is not None and any(vector) and all(map(math.isfinite, vector)) else ()

    def embed_batch(self, texts: Sequence[str], memory_action: str | None = None) -> list[Sequence[float]]:
        return [() for _ in texts]


def _cleaned(statement: Statement) -> Statement:
    return replace(statement, text=clean_fact(statement.text))
