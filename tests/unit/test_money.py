import pytest

from massmem.money import dollars


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (None, "price not known"), (0, "$0"), (0.0, "$0"), (0.00000012, "$0.00000012"), (0.00213, "$0.0021"),
        (0.009999, "$0.0100"), (0.01, "$0.01"), (0.256, "$0.26"), (12.345, "$12.35"), (1234.5, "$1,234.50"),
    ],
)  # fmt: skip
def test_amounts_are_short_and_never_rounded_to_nothing(amount: float | None, text: str):
    assert dollars(amount) == text
