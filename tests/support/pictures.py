"""Small pictures and PDFs."""

from base64 import b64decode

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
    data, offsets = b"%PDF-1.4\n", list[int]()
    for number, content in enumerate(objects, start=1):
        offsets.append(len(data))
        data += f"{number} 0 obj\n{content}\nendobj\n".encode()
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    end = f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(data)}\n%%EOF\n"
    return data + f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}{end}".encode()


def encrypt_pdf(data: bytes, password: str) -> bytes:
    """Return the PDF, which opens with this password only."""
    from io import BytesIO

    from pypdf import PdfReader, PdfWriter

    writer, out = PdfWriter(clone_from=PdfReader(BytesIO(data))), BytesIO()
    writer.encrypt(password, algorithm="RC4-128")
    writer.write(out)
    return out.getvalue()
