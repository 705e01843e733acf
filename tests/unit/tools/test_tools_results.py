from mcp.types import BlobResourceContents, EmbeddedResource, ResourceLink, TextContent, TextResourceContents

from massmem.tools.results import MAX_CHARACTERS, blocks_to_text, clean_result, excerpt


def words(text: str) -> int:
    return len(text.split())


def test_every_kind_of_content_is_named():
    blocks = [
        TextContent(type="text", text="one"),
        ResourceLink(type="resource_link", name="notes", uri="file:///n.txt"),
        EmbeddedResource(type="resource", resource=TextResourceContents(uri="file:///a", text="two")),
        EmbeddedResource(type="resource", resource=BlobResourceContents(uri="file:///b", blob="AAAA" * 1_000)),
    ]
    assert blocks_to_text(blocks, None).splitlines() == [
        "one",
        "[resource notes: file:///n.txt]",
        "[resource file:///a]",
        "two",
        "[resource file:///b, binary, 3 kB: not shown]",
    ]


def test_structured_content_stands_in_for_none():
    assert blocks_to_text([], {"ok": True}) == '{"ok": true}'
    assert blocks_to_text([], None) == "(nothing)"
    assert blocks_to_text([TextContent(type="text", text="said")], {"ok": True}) == "said"


def test_nothing_that_a_database_or_a_terminal_chokes_on():
    assert clean_result("a\ud800b\x00c\x1b[31md") == "a�b␀cd"


def test_note_names_what_the_log_lacks():
    assert clean_result("x" * MAX_CHARACTERS) == "x" * MAX_CHARACTERS
    assert clean_result("x" * (MAX_CHARACTERS + 1_234)).endswith("x\n[1,234 more characters were not kept]")


def test_an_excerpt_has_the_beginning_and_the_end():
    text = " ".join(f"w{n}" for n in range(10_000))
    cut = excerpt(text, 100, words, lambda start, end: f"[{end - start} left out]")
    assert cut.startswith("w0 w1 ")
    assert cut.endswith(" w9999")
    head, gap, tail = cut.split("\n")
    assert len(head) + len(tail) + int(gap.removeprefix("[").removesuffix(" left out]")) == len(text)
    assert words(cut) < 130
    assert excerpt("short text", 100, words, lambda *_: "") == "short text"
    assert excerpt("a few more words than tokens are", 7, words, lambda *_: "") == "a few more words than tokens are"
