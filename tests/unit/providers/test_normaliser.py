"""What servers send, in all the shapes that are known of them, and what becomes of it."""

import pytest

from tests.support.wires import Wire, list_wires


@pytest.mark.parametrize("wire", [pytest.param(wire, id=wire.name) for wire in list_wires()])
async def test_shape_of_the_wire_is_read(wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    await wire.check(caplog)
