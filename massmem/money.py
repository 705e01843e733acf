"""Amounts of money as people read them."""

import math


def dollars(amount: float | None) -> str:
    """`$12.35`, `$0.04`, `$0.0021` (two digits of what is less than a cent), `$0`; `price not known` for None."""
    if amount is None:
        return "price not known"
    if amount >= 0.01:
        return f"${amount:,.2f}"
    return f"${amount:.{1 - math.floor(math.log10(amount))}f}" if amount > 0 else "$0"
