"""mem0's own pipeline over one conversation, with our parts in the places of its model, embedder, store and history.

mem0 decides what happens in which order: it looks up what is known, writes the prompt, asks the model and stores what
the model says. Our parts see to it that nothing is lost or added on the way. Importing this module imports mem0, which
takes seconds and needs prepare_mem0 first: massmem.memory.extraction.extractor does both, in a thread.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

# mem0 has no type stubs.
from mem0.configs.base import MemoryConfig as Mem0Config  # pyright: ignore[reportMissingTypeStubs]
from mem0.exceptions import LLMError  # pyright: ignore[reportMissingTypeStubs]
from mem0.memory.main import Memory as Mem0  # pyright: ignore[reportMissingTypeStubs]
from mem0.memory.storage import SQLiteManager  # pyright: ignore[reportMissingTypeStubs]
from mem0.utils import spacy_models  # pyright: ignore[reportMissingTypeStubs]

from massmem.core.errors import MalformedResponse, MassmemError
from massmem.core.messages import Reply
from massmem.memory.access import visible_to
from massmem.memory.extraction.facts import clean_fact, is_grounded, is_knowledge, normalize_fact
from massmem.memory.extraction.messages import Chunk, KnownFacts, Origin, list_message_ids
from massmem.memory.extraction.prompts import COMPACT_SYSTEM, INSTRUCTIONS, compact_prompt
from massmem.memory.extraction.replies import ParsedReply, Statement, parse_reply
from massmem.memory.index import valid_ids
from massmem.memory.persistent import Scope, Selection
from massmem.memory.points import USER_ID

# mem0 would download a spaCy model when spaCy is installed.
for _name in ("_load_failed_full", "_load_failed_lemma"):
    setattr(spacy_models, _name, True)

_OBSERVATION_DATE = re.compile(r"^(## Observation Date\n)\S+$", re.MULTILINE)
_MOST_KNOWN = 500
"""Facts of an agent in a session among which those that bear on a conversation are looked for, newest first."""

Ask = Callable[[str, str], Reply]
"""Sends system and user prompt to the model; blocking. Raises ProviderError."""


@dataclass(frozen=True, slots=True)
class ChunkFacts:
    """What one request gave."""

    statements: tuple[Statement, ...]
    duplicates: int
    """Statements that were known already."""
    complete: bool
    """As in ParsedReply."""


class Reader:
    """Reads one conversation, a chunk at a time; what came before is context for what follows. Blocking, one thread."""

    def __init__(self, ask: Ask, origin: Origin, known: KnownFacts | None, *, compact: bool) -> None:
        """known: None when nothing is known yet. compact: the model gets short prompts, see MemoryModel."""
        self._origin = origin
        self._model = Model(ask, compact=compact)
        # mem0 has no types to rely on.
        self._pipeline: Any = Pipeline(
            self._model, QueryEmbedder(known), KnownFactsStore(known, origin, self._model.add_known)
        )

    def read(self, chunk: Chunk) -> ChunkFacts:
        """Return what the model finds in the chunk.

        Raises:
            ProviderError: the model could not be asked, or refused, or nothing in its reply can be read.
            MemoryUnavailable: the index cannot be asked what is known.
        """
        moment = max(piece.created_at for piece in chunk)
        metadata = {
            "turn": self._origin.turn, "message_ids": [*list_message_ids(chunk)], "created_at": moment.isoformat()
        }  # fmt: skip
        ids = {"user_id": USER_ID, "agent_id": self._origin.agent_id, "run_id": self._origin.session_id}
        self._model.begin(chunk)
        try:
            result = self._pipeline.add([piece.as_prompt() for piece in chunk], metadata=metadata, **ids)
        except LLMError as e:
            if isinstance(e.__cause__, MassmemError):
                raise e.__cause__ from e
            raise MalformedResponse(f"the reply of the model that extracts memories cannot be read: {e}") from e
        texts: set[str] = {memory["memory"] for memory in result["results"]}
        new = self._model.new
        stored = tuple(statement for statement in new if statement.text in texts)
        return ChunkFacts(stored, self._model.duplicates + len(new) - len(stored), self._model.reply.complete)


class Pipeline(Mem0):
    """mem0's Memory for one conversation. Its own constructor would open a model, a store and a file by configuration.

    Its history stays in this process and ends with it: on disk it would keep messages in clear text, out of reach of
    whatever forgets.
    """

    def __init__(self, model: "Model", embedder: "QueryEmbedder", store: "KnownFactsStore") -> None:
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

    def __init__(self, ask: Ask, *, compact: bool) -> None:
        self._ask = ask
        self._compact = compact
        self._known: set[str] = set()
        self._chunk: Chunk = ()
        self.reply = ParsedReply(())
        self.new: tuple[Statement, ...] = ()
        self.duplicates = 0

    def begin(self, chunk: Chunk) -> None:
        """Set what the next request is about."""
        self._chunk = chunk

    def add_known(self, text: str) -> None:
        """Add a fact that is a duplicate when the model finds it again."""
        self._known.add(normalize_fact(text))

    def generate_response(self, messages: Sequence[Mapping[str, str]], **_: Any) -> str:
        """Return the model's statements that are new, cleaned, in the form that mem0 expects."""
        system, user = (message["content"] for message in messages)
        date = max(piece.created_at for piece in self._chunk).date()
        user = _OBSERVATION_DATE.sub(rf"\g<1>{date}", user)  # mem0 means today, also for an older message
        if self._compact:
            system, user = COMPACT_SYSTEM, compact_prompt(user)
        reply = self._ask(system, user)
        try:
            self.reply = parse_reply(reply.text)
        except MalformedResponse as e:
            if reply.finish == "length":
                raise MalformedResponse(f"the reply was cut off before its first fact ended; {e.message}") from e
            raise
        statements = [replace(statement, text=clean_fact(statement.text)) for statement in self.reply.statements]
        self._select_new([statement for statement in statements if self._is_worth_it(statement)])
        return json.dumps({"memory": [{"text": s.text, "attributed_to": s.attributed_to} for s in self.new]})

    def _is_worth_it(self, statement: Statement) -> bool:
        texts = (piece.text for piece in self._chunk)
        return is_knowledge(statement.text) and (not self._compact or is_grounded(statement.text, texts))

    def _select_new(self, statements: Sequence[Statement]) -> None:
        new: dict[str, Statement] = {}
        for statement in statements:
            if (key := normalize_fact(statement.text)) not in self._known:
                new.setdefault(key, statement)
        self._known |= new.keys()
        self.new = tuple(new.values())
        self.duplicates = len(statements) - len(new)


class QueryEmbedder:
    """mem0's `embedding_model`. Only the search for what is known needs a vector here.

    What is stored gets its own where it is written (PersistentMemory.add_facts); a second one would be paid for twice.
    """

    def __init__(self, known: KnownFacts | None) -> None:
        self._known = known

    def embed(self, text: str, memory_action: str | None = None) -> Sequence[float]:
        """Return the text's vector for a search; empty when there is none to be had: the newest facts do then."""
        if self._known is None or memory_action != "search":
            return ()
        try:
            vector = self._known.embed(text)
        except MassmemError:
            return ()
        return vector if vector is not None and any(vector) and all(map(math.isfinite, vector)) else ()

    def embed_batch(self, texts: Sequence[str], memory_action: str | None = None) -> list[Sequence[float]]:
        return [() for _ in texts]


@dataclass(frozen=True, slots=True)
class StoredMemory:
    """A memory as mem0 reads it from a store."""

    id: str
    score: float
    payload: dict[str, Any]


class KnownFactsStore:
    """mem0's `vector_store`: the facts of one agent in one session, as they stand in the index.

    It has only what mem0's `add` calls, so that mem0 cannot change anything. What mem0 inserts is only acknowledged:
    the statements go on as Facts, and PersistentMemory.add_facts writes them, with the ids, words and vectors that the
    index needs, all in one batch.
    """

    def __init__(self, known: KnownFacts | None, origin: Origin, add_known: Callable[[str], None]) -> None:
        self._known = known
        self._origin = origin
        self._add_known = add_known

    def insert(self, vectors: Any, payloads: Any = None, ids: Any = None) -> None:
        """Accept everything, see above."""

    def search(
        self, query: str, vectors: Sequence[float], top_k: int = 5, filters: Any = None
    ) -> Sequence[StoredMemory]:
        """Return what the agent knows that bears on the conversation; the model is told not to say it again."""
        if self._known is None:
            return []
        own = Selection(session_id=self._origin.session_id, agent_id=self._origin.agent_id, kind="fact")
        page = self._known.index.page(own, _MOST_KNOWN, 0)
        facts = {key: payload for key, payload in page if self._is_known(payload)}
        best = list(facts)[:top_k]
        if vectors and len(facts) > top_k:
            scope = Scope(self._origin.session_id, self._origin.agent_id, self._origin.turn)
            ranked = self._known.index.search_meaning(vectors, visible_to(scope, valid_ids(facts)), top_k)
            best = [key for key, _ in ranked] or best
        for key in best:
            self._add_known(facts[key]["data"])
        return [StoredMemory(str(key), 0.0, facts[key]) for key in best]

    def _is_known(self, fact: Mapping[str, Any]) -> bool:
        """Whether to find the fact again is pointless.

        What an agent found in a turn that it lost stays hidden from the others. Found again in one that it won, or may
        still win, it is new to them: it does not count as known then.
        """
        if not (self._origin.won or self._origin.undecided):
            return True
        # What the turn itself gave is shown to the others as soon as the turn is won.
        return fact["turn"] == self._origin.turn or (fact["won"] and fact["turn"] < self._origin.turn)
