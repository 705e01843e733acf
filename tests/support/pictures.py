"""Small pictures and PDFs."""

import zlib
from base64 import b64decode
from collections.abc import Sequence

PNG = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
"""A picture of one pixel."""


def make_pdf(*texts: str) -> bytes:
    """Return a PDF with a page for each text; an empty text is an empty page, as a scan is for a reader of text."""
    kids = " ".join(f"{4 + 2 * i} 0 R" for i in range(len(texts)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(texts)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for i, text in enumerate(texts):
        drawn = f"BT /F1 12 Tf 72 700 Td ({text}) Tj ET" if text else ""
        page = f"/Parent 2 0 R /MediaBox [0 0 612 792] /Contents {5 + 2 * i} 0 R /Resources << /Font << /F1 3 0 R >> >>"
        objects += [f"<< /Type /Page {page} >>", f"<< /Length {len(drawn)} >>\nstream\n{drawn}\nendstream"]
    return write_pdf([content.encode() for content in objects])


def write_pdf(objects: Sequence[bytes]) -> bytes:
    """Return a PDF of these objects; the first one is the catalogue."""
    data, offsets = bytearray(b"%PDF-1.4\n"), list[int]()
    for number, content in enumerate(objects, start=1):
        offsets.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    end = f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(data)}\n%%EOF\n"
    return bytes(data) + f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}{end}".encode()


def make_page_tree(levels: int, children: int) -> bytes:
    """Return a small PDF with children ** levels pages: each node has the same child many times."""
    nodes = [
        b"<< /Type /Pages /Count %d /Kids [%s] >>" % (children ** (levels - level), b"%d 0 R " % (level + 3) * children)
        for level in range(levels)
    ]
    return write_pdf([b"<< /Type /Catalog /Pages 2 0 R >>", *nodes, b"<< /Type /Page /MediaBox [0 0 9 9] >>"])


def make_drawing(content: bytes) -> bytes:
    """Return a PDF with a page on which this is drawn, packed."""
    packed = zlib.compress(content, 9)
    return write_pdf(
        [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Count 1 /Kids [3 0 R] >>",
            b"<< /Type /Page /MediaBox [0 0 9 9] /Contents 4 0 R /Resources << /Font << /F 5 0 R >> >> >>",
            b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(packed), packed),
            b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        ]
    )


def encrypt_pdf(data: bytes, password: str) -> bytes:
    """Return the PDF, which opens with this password only."""
    from io import BytesIO

    from pypdf import PdfReader, PdfWriter

    writer, out = PdfWriter(clone_from=PdfReader(BytesIO(data))), BytesIO()
    writer.encrypt(password, algorithm="RC4-128")
    writer.write(out)
    return out.getvalue()
