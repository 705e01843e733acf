"""Pages of the web: their main text as Markdown, without menus and advertisements.

trafilatura finds it. A stranger's page decides what that computes: read it in a worker process, as other documents.
"""

from massmem.core.errors import InputError
from massmem.core.messages import clean_text
from massmem.tools.documents import Document
from massmem.tools.encodings import decode_text


def read_page(name: str, data: bytes) -> Document:
    """Return the title and the main text of a page of HTML. name: its address.

    Raises InputError: it has no text, or its encoding is not known, or a package is missing.
    """
    text, note = decode_text(name, data)
    try:
        from trafilatura import extract, extract_metadata
    except ImportError as e:
        raise InputError(f"to read {name}, a package is missing", "pip install 'massmem[documents]'") from e
    # In doubt more of the page: what is superfluous costs tokens, what is missing costs the answer.
    main = extract(text, url=name, output_format="markdown", favor_recall=True, include_comments=False)
    if not main:
        raise InputError(
            f"{name} has no text: it may be made by a script in the browser",
            "open it in a browser, save it as PDF or copy its text to a file, and name that",
        )
    metadata = extract_metadata(text, default_url=name)
    title = " ".join(str(metadata.title or "").split()) if metadata else ""
    has_title = not title or title in main[: 2 * len(title) + 10]
    return Document(clean_text(main if has_title else f"# {title}\n\n{main}"), note=note)
