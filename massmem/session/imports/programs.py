"""The programs whose conversations can be imported, in one table: how each is recognised, and read."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

from massmem.core.citations import MOST_SOURCES, clean_citations
from massmem.core.ids import SESSION_ID
from massmem.core.messages import Citation, add_text, clean_text
from massmem.session.imports.conversations import (
    MAX_ID_LENGTH,
    PICTURE,
    ImportedConversation,
    ImportedTurn,
    Message,
    Parts,
    add_files,
    as_list,
    as_object,
    build,
    cut_blocks,
    first_of,
    follow_branch,
    make_id,
    make_title,
    parse_json,
    read_time,
)
from massmem.session.owners import public_session_id
from massmem.session.portable import read_portable

Recognise = Callable[[Mapping[str, Any]], bool]
"""Whether an object is of a form."""

_MAX_PATH = 4_096
"""Characters."""
_USERS = {"user", "human", "prompter"}
_ASSISTANTS = {
    "assistant", "agent", "model", "gpt", "chatgpt", "gemini", "bard", "bing", "ai", "bot", "claude", "grok", "llm",
}  # fmt: skip
_UNSEEN_ROLES = {
    "system", "developer", "tool", "function", "observation", "info", "error", "about", "tool_call", "tool_response",
    "function_call", "function_call_output", "reasoning", "context", "ipython", "environment",
}  # fmt: skip


def read_role(role: Any, left_out: Counter[str]) -> bool | None:
    """Return whether the user has this role; None: neither user nor assistant has. An unknown role is counted."""
    if not isinstance(role, str) or not role:
        left_out["message without an author"] += 1
        return None
    name = role.lower()
    if name in _USERS:
        return True
    if name in _ASSISTANTS:
        return False
    if name not in _UNSEEN_ROLES:
        left_out[f"message of unknown role {clean_text(name)[:40]!r}"] += 1
    return None


# ChatGPT, and DeepSeek, which took over its tree

_SPOKEN = ("text", "multimodal_text")
_UNSEEN_CONTENT = {
    "thoughts", "reasoning_recap", "code", "execution_output", "user_editable_context", "model_editable_context",
    "tether_browsing_display", "tether_browsing_code", "tether_quote", "system_error", "computer_output",
    "citable_code_output", "app_pairing_content", "system_message", "developer_content",
}  # fmt: skip
"""Kinds of content that are the assistant's work, or the user's settings."""

_MOST_UPDATES = 100
"""Of a document in one call."""
_CITATION_MARK = re.compile("[\ue200-\ue206]|【")
_CITATION = re.compile(
    "\ue200([^\ue200-\ue202]*)(?:\ue202([^\ue200\ue201]*))?\ue201|【[^【】†]*†[^【】]*】|\ue200[^\ue200\ue201]{0,200}\\Z"
)
"""kind and, separated by U+E202, what it cites; or the older form."""
_LOOSE_MARK = re.compile("[\ue200-\ue206]")
_BLANKS_BEFORE_END = re.compile(r"(?<![ \t])[ \t]+(?=[.,;:!?](?:\s|$)|$)", re.MULTILINE)


def read_chatgpt(conversation: Mapping[str, Any], _name: str) -> ImportedConversation:
    """Follow the branch that is open in the program; messages of other branches were replaced there."""
    reader = _ChatgptReader()
    messages = filter(None, map(reader.read, walk_mapping(conversation, "create_time")))
    key = first_of(conversation, "conversation_id", "id")
    return build("chatgpt", key, conversation.get("title"), messages, "chatgpt", reader.parts.left_out)


def read_deepseek(conversation: Mapping[str, Any], _name: str) -> ImportedConversation:
    """Read DeepSeek's export: ChatGPT's tree, in which a message is made of fragments."""

    def read() -> Iterator[Message]:
        for message in walk_mapping(conversation, "inserted_at"):
            files = [as_object(file).get("file_name") for file in as_list(message.get("files"))]
            fragments = [as_object(fragment) for fragment in as_list(message.get("fragments"))]
            for is_user, kind in ((True, "REQUEST"), (False, "RESPONSE")):
                texts = [str(fragment.get("content") or "") for fragment in fragments if fragment.get("type") == kind]
                if texts or (is_user and files):
                    text = add_files("\n\n".join(texts), files if is_user else ())
                    yield Message(is_user, text, read_time(message.get("inserted_at")))

    return build("deepseek", conversation.get("id"), conversation.get("title"), read(), "deepseek")


def walk_mapping(conversation: Mapping[str, Any], time: str) -> Iterator[Mapping[str, Any]]:
    """Yield the messages of the open branch. time: the field with the time of a message."""
    nodes = {str(name): as_object(node) for name, node in as_object(conversation.get("mapping")).items()}
    parents = {name: node.get("parent") for name, node in nodes.items()}
    for name, node in nodes.items():
        for child in as_list(node.get("children")):
            if isinstance(child, str) and parents.get(child, "") is None:
                parents[child] = name
    messages = {name: as_object(node.get("message")) for name, node in nodes.items()}
    times = {name: read_time(message.get(time)) for name, message in messages.items()}
    end = conversation.get("current_node")
    branch = follow_branch(parents, end, times)
    if not any(messages[name] for name in branch):  # the open end is where the tree begins
        branch = follow_branch(parents, None, times)
    yield from filter(None, (messages[name] for name in branch))


class _ChatgptReader:
    """Reads the messages of one branch in order: documents beside the chat change as it goes on.

    Many of them are work that nobody saw.
    """

    def __init__(self) -> None:
        self.parts = Parts()
        self._document, self._name = "", ""

    def read(self, message: Mapping[str, Any]) -> Message | None:
        """Return what a person saw of the message; None: nothing."""
        content, metadata = as_object(message.get("content")), as_object(message.get("metadata"))
        role, recipient = as_object(message.get("author")).get("role"), message.get("recipient") or "all"
        is_user, time = role == "user", read_time(message.get("create_time"))
        if metadata.get("is_visually_hidden_from_conversation") or message.get("channel") == "analysis":
            return None
        if role == "assistant" and str(recipient).startswith("canmore."):
            return Message(False, self._read_document(str(recipient), content), time)
        if role == "tool":
            kinds = [as_object(part).get("content_type") for part in as_list(content.get("parts"))]
            return Message(False, "\n".join([PICTURE] * kinds.count("image_asset_pointer")), time)
        kind = str(content.get("content_type") or "text")
        if role not in ("user", "assistant") or recipient != "all" or kind in _UNSEEN_CONTENT:
            return None
        if kind not in _SPOKEN:
            self.parts.leave_out(kind)
            return Message(is_user, "", time, unread=self.parts.unread)
        text = replace_citations(self.parts.read(content.get("parts")), as_list(metadata.get("content_references")))
        unread = self.parts.unread
        return Message(is_user, _add_attachments(text, as_list(metadata.get("attachments"))), time, unread=unread)

    def _read_document(self, recipient: str, content: Mapping[str, Any]) -> str:
        """Return the document beside the chat as the call made or changed it, "" when it did not."""
        text = content.get("text") or "".join(part for part in as_list(content.get("parts")) if isinstance(part, str))
        call = as_object(parse_json(text))
        if recipient == "canmore.create_textdoc" and isinstance(call.get("content"), str):
            self._name, self._document = str(call.get("name") or "document"), call["content"]
        elif not (recipient == "canmore.update_textdoc" and self._update(as_list(call.get("updates")))):
            self.parts.leave_out(recipient)
            return ""
        return f"--- {self._name} ---\n{self._document}" if self._document.strip() else ""

    def _update(self, updates: list[Any]) -> bool:
        """Change the document. Return whether that could be done: patterns that are no plain text are not followed."""
        document = self._document
        if len(updates) > _MOST_UPDATES or not self.parts.may_change(document):
            return False
        for update in map(as_object, updates):
            pattern, replacement = update.get("pattern"), update.get("replacement")
            if not isinstance(pattern, str) or not isinstance(replacement, str):
                return False
            if pattern in (".*", "(?s).*", "[\\s\\S]*"):
                document = replacement
            elif pattern and pattern in document:
                document = document.replace(pattern, replacement, -1 if update.get("multiple") else 1)
            else:
                return False
        is_changed, self._document = document != self._document, document
        return is_changed


def _add_attachments(text: str, attachments: list[Any]) -> str:
    """Return the text with the names of the files that came with it; a picture that has one stands there once."""
    files = [file for file in map(as_object, attachments) if file]
    named, lines = sum(str(file.get("mime_type")).startswith("image/") for file in files), list[str]()
    for line in text.split("\n"):
        named -= (is_named := line == PICTURE and named > 0)
        lines += [] if is_named else [line]
    return add_files("\n".join(lines), (file.get("name") for file in files))


def replace_citations(text: str, references: list[Any]) -> str:
    """Return the text with what its marks show: links and names in Markdown. Marks that show nothing are removed."""
    if not _CITATION_MARK.search(text):
        return text
    for reference in map(as_object, references):
        mark = reference.get("matched_text")
        if isinstance(mark, str) and _CITATION_MARK.search(mark):
            text = text.replace(mark, _show_reference(reference))
    text = _CITATION.sub(lambda match: _show_mark(match[1] or "", match[2] or ""), text)
    return _BLANKS_BEFORE_END.sub("", _LOOSE_MARK.sub("", text))


def _show_reference(reference: Mapping[str, Any]) -> str:
    alt = reference.get("alt")
    if isinstance(alt, str) and (alt or reference.get("type") == "hidden"):
        return _LOOSE_MARK.sub("", alt)
    items = map(as_object, as_list(reference.get("items")) or [reference])
    links = [_link(str(first_of(item, "title", "name", "attribution") or ""), item.get("url")) for item in items]
    return f"({', '.join(filter(None, links))})" if any(links) else ""


def _link(title: str, url: Any) -> str:
    return f"[{title or url}]({url})" if isinstance(url, str) and url else title


def _show_mark(kind: str, details: str) -> str:
    """Return what a mark shows that no reference explains: the name of a thing, a link, or nothing."""
    if kind == "entity":
        names = as_list(parse_json(details))
        return names[1] if len(names) > 1 and isinstance(names[1], str) else ""
    if kind == "url":
        title, _, url = details.partition("\ue202")
        return _link(title, url)
    return ""


# Claude

_PLACEHOLDER = re.compile(r"\n?```\s*\nThis block is not supported on your current device yet\.\s*\n```\n?")
_ANT_THINKING = re.compile("<antThinking>")
_ANT_ARTIFACT = re.compile(r"</?antArtifact\b[^<>]*>")
_BEGINNING = re.compile(r"0{8}-0{4}-[04]0{3}-[08]0{3}-0{12}")
"""The parent of a first message of Claude and LibreChat."""


def _read_claude(conversation: Mapping[str, Any], _name: str) -> ImportedConversation:
    documents: dict[str, str] = {}
    parts = Parts(read_tool=lambda call: _read_artifact(call, documents, parts))
    messages = [as_object(message) for message in as_list(conversation["chat_messages"])]
    branch = _choose_branch(messages, conversation.get("current_leaf_message_uuid"), "uuid", "parent_message_uuid")
    exchange = _read_exchange(branch, parts, _show_claude)
    return build("claude", conversation.get("uuid"), conversation.get("name"), exchange, "claude", parts.left_out)


def _read_artifact(call: Mapping[str, Any], documents: dict[str, str], parts: Parts) -> str:
    """Return the document that the call makes or changes, with its title; "" for another tool."""
    if call.get("name") != "artifacts":
        return ""
    document = as_object(call.get("input"))
    name, content, old = str(document.get("id")), document.get("content"), document.get("old_str")
    before = documents.get(name, "")
    if not isinstance(content, str) and isinstance(old, str) and old in before and parts.may_change(before):
        content = before.replace(old, str(document.get("new_str") or ""), 1)
    if not isinstance(content, str):
        parts.leave_out("artifacts")
        return ""
    documents[name] = content
    return f"--- {first_of(document, 'title') or 'document'} ---\n{content}"


def _show_claude(text: str, message: Mapping[str, Any]) -> str:
    """Return the text with those of the files that came with it, or their names."""
    text = cut_blocks(_PLACEHOLDER.sub("\n", text), _ANT_THINKING, "</antThinking>")
    text, names = _ANT_ARTIFACT.sub("", text).strip(), list[str]()
    attachments = list(map(as_object, as_list(message.get("attachments"))))
    for file in attachments:
        name, content = str(file.get("file_name") or "pasted text"), file.get("extracted_content")
        if isinstance(content, str) and content.strip():
            text = add_text(text, name, content).lstrip("\n")
        else:
            names.append(name)
    attached = {file.get("file_name") for file in attachments}
    files = map(as_object, as_list(message.get("files")))
    names += [str(file["file_name"]) for file in files if file.get("file_name") and file["file_name"] not in attached]
    return add_files(text, names)


def _choose_branch(
    messages: Sequence[Mapping[str, Any]], end: Any, id_field: str, parent_field: str
) -> list[Mapping[str, Any]]:
    """Return the messages of the open branch, in order. A message that names no known parent follows the one before.

    end: its id; when it is none of them, the branch of the newest message is open.
    """
    nodes = {str(message.get(id_field) or f"#{place}"): message for place, message in enumerate(messages)}
    if not any(isinstance(m.get(parent_field), str) and m[parent_field] in nodes for m in messages):
        return [*nodes.values()]
    names, parents = [*nodes], dict[str, Any]()
    for before, (name, message) in zip([None, *names], nodes.items(), strict=False):
        parent = message.get(parent_field, before)
        is_root = parent is None or parent == nodes[names[0]].get(parent_field) or _BEGINNING.fullmatch(str(parent))
        parents[name] = parent if isinstance(parent, str) and parent in nodes else None if is_root else before
    times = {name: read_time(first_of(message, *_TIMES)) for name, message in nodes.items()}
    return [nodes[name] for name in follow_branch(parents, end, times)]


# massmem


def _read_massmem(export: Mapping[str, Any], _name: str) -> ImportedConversation:
    """Read an export of massmem. The session keeps its id, whosever it was, unless it cannot be one."""
    session, left_out = as_object(export.get("session")), Counter[str]()
    turns = tuple(filter(None, (read_turn(as_object(turn), left_out) for turn in as_list(export["turns"]))))
    session_id, title = session.get("session_id"), make_title(session.get("title"), turns)
    if not isinstance(session_id, str):
        session_id = make_id(f"massmem:{[(turn.question, turn.answer) for turn in turns[:1]]}")
    session_id = public_session_id(session_id)
    if len(session_id) > MAX_ID_LENGTH or not SESSION_ID.fullmatch(session_id):
        session_id = make_id(f"massmem:{session_id}")
    try:
        portable = read_portable(export)
    except (ValueError, TypeError, LookupError, AttributeError):
        portable = None
        left_out["log of another version or damaged: the turns alone"] += 1
    if portable is not None:
        left_out.clear()
    has_id = isinstance(session.get("session_id"), str)
    return ImportedConversation(session_id, title, turns, has_id, +left_out, portable)


def read_turn(turn: Mapping[str, Any], left_out: Counter[str]) -> ImportedTurn | None:
    """Return a turn of massmem or MassGen; None: it was undone, or has no question or no answer."""
    question, answer = turn.get("question"), turn.get("answer")
    if (
        turn.get("status") == "undone"
        or turn.get("withdrawn") is True
        or not isinstance(question, str)
        or not question.strip()
    ):
        return None
    if not isinstance(answer, str) or not answer.strip():
        left_out["question without an answer"] += 1
        return None
    left_out["attached file"] += len(as_list(turn.get("files")))
    agent = clean_text(str(turn.get("winner") or "massmem"))[:MAX_ID_LENGTH]
    began, ended = (read_time(turn.get(name)) for name in ("started_at", "ended_at"))
    citations = tuple(clean_citations(map(_read_citation, as_list(turn.get("citations"))[:MOST_SOURCES])))
    return ImportedTurn(clean_text(question), clean_text(answer), agent, began, ended, citations)


def _read_citation(entry: Any) -> Citation:
    """Return a source of an answer; one that is none keeps its number."""
    citation = as_object(entry)
    url, title, quote, agent_id = (
        clean_text(text) if isinstance(text := citation.get(name), str) else ""
        for name in ("url", "title", "quote", "agent_id")
    )
    return Citation(url, title, quote, agent_id)


# Programs that keep a tree of messages


_DETAILS = re.compile(r'<details\b[^<>]{0,500}?\btype="(?:reasoning|tool_calls|code_interpreter)"[^<>]{0,500}>')
_THINK = re.compile(r"\A\s*<think(?:ing)?>.*?</think(?:ing)?>\s*", re.DOTALL)


def _read_open_webui(conversation: Mapping[str, Any], name: str) -> ImportedConversation:
    chat = as_object(conversation.get("chat")) or conversation
    history, parts = as_object(chat.get("history")), Parts()
    nodes = [{"id": key, **as_object(node)} for key, node in as_object(history.get("messages")).items()]
    branch = _choose_branch(nodes, history.get("currentId"), "id", "parentId") or as_list(chat.get("messages"))
    exchange = _read_exchange(map(as_object, branch), parts, _show_open_webui)
    key = first_of(conversation, "id") or first_of(chat, "id")
    title = first_of(conversation, "title") or chat.get("title")
    return build("open-webui", key, title, exchange, "assistant", parts.left_out)


def _show_open_webui(text: str, message: Mapping[str, Any]) -> str:
    text, names = _hide_thoughts(cut_blocks(text, _DETAILS, "</details>"), message), list[Any]()
    for file in map(as_object, as_list(message.get("files"))):
        inner = as_object(file.get("file"))
        title = first_of(file, "name") or first_of(inner, "filename")
        content = as_object(inner.get("data")).get("content")
        if isinstance(content, str) and content.strip():
            text = add_text(text.strip(), str(title), content).lstrip("\n")
        elif not title and file.get("type") == "image":
            text = f"{text}\n{PICTURE}"
        else:
            names.append(title)
    return add_files(text, names)


def _read_librechat(conversation: Mapping[str, Any], _name: str) -> ImportedConversation:
    parts, messages = Parts(), list[Mapping[str, Any]]()
    waiting = [(as_object(message), None) for message in reversed(as_list(conversation["messages"]))]
    while waiting:  # children stand inside their parents, unless the export was made flat
        message, parent = waiting.pop()
        is_user, name = message.get("isCreatedByUser"), message.get("messageId")
        if not isinstance(is_user, bool):
            is_user = str(message.get("sender")).lower() in _USERS
        role, agent = "user" if is_user else "assistant", first_of(message, "model", "sender")
        fields = {"role": role, "content": first_of(message, "text", "content"), "model": agent}
        messages.append({**({"parentMessageId": parent} if parent else {}), **message, **fields})
        waiting += [(as_object(child), name) for child in reversed(as_list(message.get("children")))]
    branch = _choose_branch(messages, conversation.get("currentId"), "messageId", "parentMessageId")
    key, title = conversation.get("conversationId"), conversation.get("title")
    exchange = _read_exchange(branch, parts, _show_librechat)
    return build("librechat", key, title, exchange, "assistant", parts.left_out)


def _show_librechat(text: str, message: Mapping[str, Any]) -> str:
    files = [as_object(file).get("filename") for file in as_list(message.get("files"))]
    return add_files(_hide_thoughts(text, message), files)


def _read_grok(entry: Mapping[str, Any], _name: str) -> ImportedConversation:
    conversation, parts = as_object(entry["conversation"]), Parts()
    responses = [as_object(as_object(one).get("response")) for one in as_list(entry.get("responses"))]
    exchange = _read_exchange(_choose_branch(responses, None, "_id", "parent_response_id"), parts)
    return build("grok", conversation.get("id"), conversation.get("title"), exchange, "grok", parts.left_out)


def _read_claude_code(lines: Sequence[Mapping[str, Any]], name: str) -> Iterator[ImportedConversation]:
    """Yield the sessions of Claude Code in a file, which has a line for each part of an answer."""
    sessions: dict[str, list[Mapping[str, Any]]] = {}
    for line in lines:
        if not line.get("isSidechain"):
            sessions.setdefault(str(line.get("sessionId") or ""), []).append(line)
    titles = sessions.pop("", []) if len(sessions) > 1 else []
    for session_id, entries in sessions.items():
        parts = Parts()
        ids = {line.get("uuid") for line in entries if isinstance(line.get("uuid"), str)}
        own = [*reversed(entries), *(line for line in titles if line.get("leafUuid") in ids)]
        title = next((title for line in own if (title := first_of(line, "customTitle", "summary"))), None)
        tree = [
            {**line, "parent": first_of(line, "parentUuid", "logicalParentUuid")} for line in entries if "uuid" in line
        ]
        messages = [
            {
                "role": line["type"],
                "content": as_object(line.get("message")).get("content"),
                "time": line.get("timestamp"),
            }
            for line in _choose_branch(tree, None, "uuid", "parent")
            if line.get("type") in ("user", "assistant") and not line.get("isMeta") and not line.get("isCompactSummary")
        ]
        exchange = _read_exchange(messages, parts, _show_claude_code)
        conversation = build("claude-code", session_id, title, exchange, "claude", parts.left_out)
        yield replace(conversation, folder=_read_folder(entries))


def _show_claude_code(text: str, _message: Mapping[str, Any]) -> str:
    # Commands of the program and what they print are marked like this.
    return "" if text.lstrip().startswith(("<command-", "<local-command-", "<system-reminder>")) else text


def _read_codex(lines: Sequence[Mapping[str, Any]], name: str) -> Iterator[ImportedConversation]:
    """Yield the session of Codex in a file: what its program has shown."""
    messages, key, folder = list[Message](), None, ""
    for line in lines:
        payload = as_object(line.get("payload"))
        if line.get("type") == "session_meta":
            key, folder = payload.get("id"), _read_folder([payload])
        elif line.get("type") == "event_msg" and payload.get("type") in ("user_message", "agent_message"):
            text = str(payload.get("message") or "")
            messages.append(Message(payload["type"] == "user_message", text, read_time(line.get("timestamp"))))
    yield replace(build("codex", key, None, messages, "codex"), folder=folder)


def _read_folder(entries: Iterable[Mapping[str, Any]]) -> str:
    """Return the working directory that the first entry with one names."""
    folder = next((folder for entry in entries if isinstance(folder := entry.get("cwd"), str)), "")
    return clean_text(folder)[:_MAX_PATH]


# Gemini


_BLOCKS = {"p", "br", "div", "li", "tr", "pre", "ul", "ol", "table", "h1", "h2", "h3", "h4", "h5", "h6"}


class _Text(HTMLParser):
    """Collects the text of HTML, with a line for each block."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.pieces.append(("\n- " if tag == "li" else "\n") if tag in _BLOCKS else "")

    def handle_endtag(self, tag: str) -> None:
        self.pieces.append("\n" if tag in _BLOCKS else "")

    def handle_data(self, data: str) -> None:
        self.pieces.append(data)


def _read_html(html: str) -> str:
    reader = _Text()
    reader.feed(html)
    reader.close()
    return re.sub(r"\n\s*\n", "\n\n", "".join(reader.pieces)).strip()


_PROMPTED = re.compile(r"\A(?:Prompted|Asked|Said|Eingegebener Prompt:)\s+")


def _read_activities(activities: Sequence[Mapping[str, Any]], _name: str) -> Iterator[ImportedConversation]:
    """Yield a conversation for each prompt in Google's record of activity, which says of none what it went on from."""
    for activity in activities:
        title, answers = str(activity.get("title") or ""), as_list(activity.get("safeHtmlItem"))
        texts = [_read_html(str(as_object(answer).get("html") or "")) for answer in answers]
        question, time = _PROMPTED.sub("", title), read_time(activity.get("time"))
        files = [as_object(file).get("name") for file in as_list(activity.get("attachedFiles"))]
        if question == title and not any(texts):
            yield ImportedConversation("", title, (), left_out=Counter({"activity without a prompt": 1}))
            continue
        messages = [Message(True, add_files(question, files), time), Message(False, "\n\n".join(texts), time)]
        yield build("gemini", f"{activity.get('time')}:{title}", question, messages, "gemini")


def _read_ai_studio(prompt: Mapping[str, Any], name: str) -> ImportedConversation:
    parts = Parts()
    chunks = [as_object(chunk) for chunk in as_list(as_object(prompt["chunkedPrompt"]).get("chunks"))]
    title = first_of(prompt, "title") or name
    return build("ai-studio", None, title, _read_exchange(chunks, parts), "gemini", parts.left_out)


# Lists of messages, as the APIs take them and many programs write them


def _read_lm_studio(conversation: Mapping[str, Any], name: str) -> ImportedConversation:
    messages: list[Mapping[str, Any]] = []
    for message in map(as_object, as_list(conversation["messages"])):
        versions, chosen = as_list(message.get("versions")), message.get("currentlySelected")
        version = as_object(versions[chosen] if isinstance(chosen, int) and 0 <= chosen < len(versions) else None)
        steps = [version, *map(as_object, as_list(version.get("steps")))]
        shown = [step for step in steps if as_object(step.get("style")).get("type") != "thinking"]
        content = [part for step in shown for part in as_list(step.get("content"))]
        agent = as_object(version.get("senderInfo")).get("senderName")
        messages.append({"role": version.get("role"), "content": content, "model": agent})
    title = conversation.get("name")
    return _read_messages({"messages": messages, "title": title, "id": conversation.get("createdAt")}, name)


def _read_messages(conversation: Mapping[str, Any], name: str) -> ImportedConversation:
    parts = Parts()
    field = next(key for key in _MESSAGE_LISTS if key in conversation)
    messages = [as_object(message) for message in as_list(conversation[field])]
    key = first_of(conversation, *_CONVERSATION_IDS) or first_of(messages[0] if messages else {}, *_THREAD_IDS)
    # A short id may stand for another conversation in another file.
    program = "messages" if len(str(key)) >= _UNIQUE else f"messages:{name}"
    agent = "gemini" if any(message.get("type") == "gemini" for message in messages) else "assistant"
    title = first_of(conversation, "title", "name", "chatTitle", "summary")
    return build(program, key, title, _read_exchange(messages, parts), agent, parts.left_out)


_MESSAGE_LISTS = ("messages", "conversations", "conversation", "items", "contents", "history")
_THREAD_IDS = ("session_id", "sessionId", "conversation_id", "conversationId", "thread_id", "chatId", "chatID")
_CONVERSATION_IDS = ("id", *_THREAD_IDS)
_UNIQUE = 16
"""Characters of an id that no other file uses for another conversation."""
_ROLES = ("role", "from", "sender", "author", "type")
_CONTENTS = ("content", "parts", "text", "value", "message")
_TIMES = ("timestamp", "created_at", "createdAt", "create_time", "created", "time", "date")


def _hide_thoughts(text: str, _message: Mapping[str, Any]) -> str:
    return _THINK.sub("", text)


def _read_exchange(
    messages: Iterable[Mapping[str, Any]],
    parts: Parts,
    show: Callable[[str, Mapping[str, Any]], str] = _hide_thoughts,
) -> Iterator[Message]:
    """Yield messages, as a person saw them. show: returns what stood there for the text of a message."""
    for message in messages:
        role = first_of(message, *_ROLES)
        role = as_object(role).get("role") if isinstance(role, dict) else role
        is_user = read_role(role, parts.left_out)
        if is_user is None or message.get("isThought"):
            continue
        text = unread = ""
        for name in _CONTENTS:
            if not text.strip() and message.get(name):
                text, unread = parts.read(message[name]), unread or parts.unread
        agent = "" if is_user else str(first_of(message, "modelName", "model") or "")
        yield Message(is_user, show(text, message), read_time(first_of(message, *_TIMES)), agent, unread)


def _is_message(element: Mapping[str, Any]) -> bool:
    """Whether an element of a list is a message: somebody has said something."""
    role = first_of(element, *_ROLES)
    return isinstance(role, str) and (
        role in _USERS | _ASSISTANTS | _UNSEEN_ROLES
        or (any(name in element for name in _ROLES[:4]) and any(name in element for name in _CONTENTS))
    )


def _has_messages(element: Mapping[str, Any]) -> bool:
    """Whether an object has a list of messages."""
    lists = [as_list(element[name]) for name in _MESSAGE_LISTS if isinstance(element.get(name), list)]
    return "messages" in element or any(_is_message(as_object(one)) for messages in lists for one in messages[:3])


def _any_in(data: Any, name: str) -> bool:
    """Whether one of the first objects of a list or of an object's values has a field."""
    values = list(as_object(data).values())[:5] or as_list(data)[:5]
    return any(name in as_object(value) for value in values)


def _is_open_webui(element: Mapping[str, Any]) -> bool:
    return "history" in (as_object(element.get("chat")) or element) and not isinstance(element.get("history"), list)


PROGRAMS: tuple[tuple[Recognise, Callable[[Mapping[str, Any], str], ImportedConversation]], ...] = (
    (lambda e: any(_has_fragments(node) for node in as_object(e.get("mapping")).values()), read_deepseek),
    (lambda e: "mapping" in e, read_chatgpt),
    (lambda e: "chat_messages" in e, _read_claude),
    (lambda e: "turns" in e, _read_massmem),
    (_is_open_webui, _read_open_webui),
    (lambda e: _any_in(e.get("messages"), "messageId"), _read_librechat),
    (lambda e: "conversation" in e and "responses" in e, _read_grok),
    (lambda e: "chunkedPrompt" in e, _read_ai_studio),
    (lambda e: _any_in(e.get("messages"), "versions"), _read_lm_studio),
    (_has_messages, _read_messages),
)
"""How a conversation is recognised, and what reads it; that gets the name of the file, too."""


def _has_fragments(node: Any) -> bool:
    return "fragments" in as_object(as_object(node).get("message"))


LISTINGS: tuple[tuple[Recognise, Callable[[Sequence[Mapping[str, Any]], str], Iterable[ImportedConversation]]], ...] = (
    (lambda e: ("sessionId" in e and "type" in e) or e.get("type") == "summary", _read_claude_code),
    (lambda e: "payload" in e and "type" in e, _read_codex),
    (lambda e: "header" in e and "title" in e, _read_activities),
    (_is_message, lambda messages, name: [_read_messages({"messages": messages}, name)]),
)
"""The same for files that are lists of messages, or of lines: one of the first elements is recognised."""
