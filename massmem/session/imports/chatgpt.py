"""Reads conversations of ChatGPT: a tree of messages, of which many are work that nobody saw."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from massmem.session.imports.conversations import (
    PICTURE,
    ImportedConversation,
    Message,
    Parts,
    add_files,
    as_list,
    as_object,
    build,
    first_of,
    follow_branch,
    parse_json,
    read_time,
)

_SPOKEN = ("text", "multimodal_text")
_UNSEEN = {
    "thoughts", "reasoning_recap", "code", "execution_output", "user_editable_context", "model_editable_context",
    "tether_browsing_display", "tether_browsing_code", "tether_quote", "system_error", "computer_output",
    "citable_code_output", "app_pairing_content", "system_message", "developer_content",
}  # fmt: skip
"""Kinds of content that are the assistant's work, or the user's settings."""

_MOST_UPDATES = 100
"""Of a document in one call."""
_MARK = re.compile("[\ue200-\ue206]|【")
_CITATION = re.compile(
    "\ue200([^\ue200-\ue202]*)(?:\ue202([^\ue200\ue201]*))?\ue201|【[^【】†]*†[^【】]*】|\ue200[^\ue200\ue201]{0,200}\\Z"
)
"""kind and, separated by U+E202, what it cites; or the older form."""
_LOOSE_MARK = re.compile("[\ue200-\ue206]")
_BLANKS_BEFORE_END = re.compile(r"(?<![ \t])[ \t]+(?=[.,;:!?](?:\s|$)|$)", re.MULTILINE)


def read_chatgpt(conversation: Mapping[str, Any], _name: str) -> ImportedConversation:
    """Follow the branch that is open in the program; messages of other branches were replaced there."""
    reader = _Reader()
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


class _Reader:
    """Reads the messages of one branch in order: documents beside the chat change as it goes on."""

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
        if role not in ("user", "assistant") or recipient != "all" or kind in _UNSEEN:
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
    if not _MARK.search(text):
        return text
    for reference in map(as_object, references):
        mark = reference.get("matched_text")
        if isinstance(mark, str) and _MARK.search(mark):
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
