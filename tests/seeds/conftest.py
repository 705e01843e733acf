"""What the documents print that people come from: each test runs it as it is printed, or the form that it has here.

`@seed(printed)` marks what runs as printed, `@seed(printed, here, why)` what is called otherwise here.
docs/coming-from.md is made from these marks (scripts/docs.py).
"""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "seed(printed, here, why): what a document prints, and what it is here")
