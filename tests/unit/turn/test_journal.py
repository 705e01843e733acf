"""The journal of an agent's work: what of it stands in a prompt, in which room, and what can be read again."""

import json

import pytest

from massmem.core.events import ToolCalled, ToolReturned
from massmem.core.messages import Usage
from massmem.turn.journal import CUT_OFF, READ_EARLIER, Journal, list_names

QUESTION = "Read all modules and tell me the retry limit of each."
FOLDER = "/srv/projects/massive/docs"


def count(text: str) -> int:
    return len(text.split())


def work(
    *results: str, notes: dict[int, str] | None = None, path: str = "docs/m{}.md", batch: int = 1, failed: bool = False
) -> Journal:
    """A journal with one call for each result, a reply each. notes: beside the call with this index."""
    journal = Journal("ann")
    for index, result in enumerate(results):
        call(journal, index + batch, path.format(index), result, (notes or {}).get(index, ""), failed=failed)
    return journal


def call(
    journal: Journal, batch: int, path: str, result: str | None, text: str = "", *, n: int = 1, failed: bool = False
) -> None:
    call_id = f"call_r1b{batch}n{n}"
    journal.feed(
        ToolCalled(
            agent_id="ann", round=1, call_id=call_id, batch=batch, name="mcp__files__read_file",
            arguments=json.dumps({"path": path}), text=text, usage=Usage(),
        )
    )  # fmt: skip
    if result is not None:
        returned = ToolReturned(
            agent_id="ann", round=1, name="read_file", content=result, call_id=call_id, failed=failed
        )
        journal.feed(returned)


def prose(module: int, limit: int) -> str:
    filler = "The team waits for rows. Nobody signs the list before midnight. "
    return f"{filler * 8}The retry limit of module m{module} is {limit}. {filler * 8}"


def test_a_call_is_one_line_with_its_size_and_what_the_question_asks_for():
    text = work(prose(0, 47), prose(1, 48)).write((), QUESTION, 500, count)
    assert text.splitlines() == [
        "1 read_file docs/m0.md, 1.1 KB: The retry limit of module m0 is 47.",
        "2 read_file docs/m1.md, 1.1 KB: The retry limit of module m1 is 48.",
    ]


def test_calls_that_are_shown_word_for_word_are_left_out():
    journal = work(prose(0, 47), prose(1, 48))
    assert "m0" not in journal.write({"call_r1b1n1"}, QUESTION, 500, count)
    assert journal.write({"call_r1b1n1", "call_r1b2n1"}, QUESTION, 500, count) == ""
    assert journal.has_other_calls({"call_r1b1n1"}) and not journal.has_other_calls({"call_r1b1n1", "call_r1b2n1"})


def test_note_of_the_agent_is_shown_and_no_line_that_says_the_same():
    notes = {1: "m0.md: the retry limit is 47!\nNow the next file.", 2: "Next is m2.md."}
    text = work(prose(0, 47), prose(1, 48), prose(2, 49), notes=notes).write((), QUESTION, 500, count)
    first, second, _ = text.splitlines()
    assert first == "1 read_file docs/m0.md, 1.1 KB: m0.md: the retry limit is 47!"
    assert second.endswith(": The retry limit of module m1 is 48."), "a note that only names a file says nothing of it"


def test_a_note_without_a_name_belongs_to_the_result_that_it_shares_most_with():
    journal = Journal("ann")
    call(journal, 1, "a.md", "Pump P-17 stands in hall H-412.", n=1)
    call(journal, 1, "b.md", "Pump P-18 stands in hall H-413.", n=2)
    call(journal, 2, "c.md", None, "P-18 is in H-413, near the gate.\nI go on.")
    lines = journal.write((), "Tell me about the valves.", 500, count).splitlines()
    assert "2 read_file b.md, 31 B: P-18 is in H-413, near the gate." in lines
    assert "read_file: 1 a.md" in lines, "nothing was found in it for this question"


def test_note_that_comes_after_the_entry_was_written_is_taken_in():
    journal = work("Zufluss offen, Ventil 12 klemmt.")
    assert journal.write((), QUESTION, 500, count) == "read_file docs: 1 m0.md"
    call(journal, 2, "b.md", None, "In docs/m0.md valve 12 is stuck.")
    assert journal.write((), QUESTION, 500, count).startswith("1 read_file docs/m0.md, 32 B: In docs/m0.md valve 12")


def test_failed_and_unknown_calls_say_so():
    journal = work("there is no docs/m0.md", failed=True)
    call(journal, 2, "b.md", CUT_OFF, failed=True)
    call(journal, 3, "c.md", None)
    assert journal.write((), QUESTION, 500, count).splitlines() == [
        "1 read_file docs/m0.md failed: there is no docs/m0.md",
        "2 read_file b.md outcome unknown: it was cut off while it ran",
        "3 read_file c.md outcome unknown: it was cut off while it ran",
    ]


def test_a_long_folder_is_written_once():
    text = work(*(prose(n, n) for n in range(4)), path=f"{FOLDER}/m{{}}.md").write((), QUESTION, 500, count)
    assert text.count(FOLDER) == 1
    assert "2 read_file …/m1.md, 1.1 KB" in text


def test_the_oldest_lose_what_was_found_first_and_names_last():
    journal = work(*(prose(n, 100 + n) for n in range(60)))
    small = journal.write((), QUESTION, 300, count)
    assert count(small) <= 300
    assert all(f"m{n}.md" in small for n in range(60)), "every name is there"
    assert "is 159." in small and "is 100." not in small
    folded = next(line for line in small.splitlines() if line.startswith("read_file docs: "))
    assert "1 m0.md, 2 m1.md" in folded, "files of one folder share a line"
    tiny = journal.write((), QUESTION, 40, count)
    assert count(tiny) <= 40
    assert "earlier calls, numbered from 1" in tiny and "m59.md" in tiny


def test_an_older_finding_that_bears_on_what_comes_next_is_brought_back():
    texts = [prose(n, 100 + n) for n in range(60)]
    texts[3] = "The retry limit is 103 for billing-invoices."
    journal = work(*texts)
    assert "103" not in journal.write((), QUESTION, 300, count)
    call(journal, 61, "next.md", None, "Now I compare with billing-invoices.")
    assert "4 read_file docs/m3.md: The retry limit is 103 for billing-invoices." in journal.write(
        (), QUESTION, 300, count
    )


def test_a_result_is_read_again_part_by_part():
    text = "".join(f"line {n:05d}\n" for n in range(1_000))
    journal = work(text)
    parts: list[str] = []
    for part in range(1, 10):
        try:
            heading, _, content = journal.read(1, part, 400).partition("\n")
        except ValueError as e:
            assert str(e) == f"the result of call 1 has the parts 1 to {len(parts)}"
            break
        assert heading.startswith(f"[1 read_file docs/m0.md, part {part} of ")
        parts.append(content)
    assert "".join(parts) == text and len(parts) > 5
    with pytest.raises(ValueError, match="there is no call 2; they are numbered from 1 to 1"):
        journal.read(2, 1, 400)


def test_reading_again_is_no_entry_and_what_is_noted_of_it_belongs_to_the_call():
    journal = work("Header.\n" + "x. " * 300 + "Code ZX-9.")
    arguments = json.dumps({"message": 1, "part": 2})
    again = ToolCalled(
        agent_id="ann", round=1, call_id="c2", batch=2, name=READ_EARLIER.name, arguments=arguments, usage=Usage()
    )
    journal.feed(again)
    call(journal, 3, "b.md", None, "The code is ZX-9.")
    assert len(journal.entries) == 2
    assert journal.entries[0].notes == ["The code is ZX-9."]


def test_lists_stay_in_sight_while_names_in_them_are_open():
    listing = "\n".join(f"[FILE] m{n}.md" for n in range(5))
    journal = Journal("ann")
    call(journal, 1, "docs", listing)
    everything = {f"call_r1b{n}n1" for n in range(1, 9)}
    assert journal.list_open_lists(everything, 100, count) == frozenset(), "no call has used it yet"
    for n in range(5):
        call(journal, n + 2, f"docs/m{n}.md", prose(n, n))
        assert journal.list_open_lists(everything, 100, count) == ({"call_r1b1n1"} if n < 4 else frozenset())
    assert journal.list_open_lists(everything, 3, count) == frozenset(), "it is larger than its room"


@pytest.mark.parametrize(
    ("result", "names"),
    [
        ("a.md\nb.md\nc\nd.md\ne.md", ["a.md", "b.md", "d.md", "e.md"]),
        (json.dumps([{"id": f"doc-{n}", "title": "x"} for n in range(4)]), [f"doc-{n}" for n in range(4)]),
        (json.dumps({"files": [f"f{n}.txt" for n in range(4)]}), [f"f{n}.txt" for n in range(4)]),
        ("Nothing here is a list.\nIt is prose.\nIn lines.\nFour of them.", []),
        ('{"a": [1, 2]', []),
        ("", []),
    ],
)
def test_names_of_a_list(result: str, names: list[str]):
    assert [line[0] for line in list_names(result)] == names
