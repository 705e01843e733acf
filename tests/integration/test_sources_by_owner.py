"""Which of the addresses that agents cite are read: for the user of this machine, and for one of the service."""

import json
from pathlib import Path

from massmem.core.events import ItemsMerged
from massmem.core.records import COMMAND_LINE_USER, Owner
from massmem.session.session import Session
from massmem.session.team import Team
from tests.support.json_server import serve_posts
from tests.support.sessions import collect, team
from tests.support.turns import only


async def test_only_the_user_of_this_machine_opens_this_network_by_naming_an_address(tmp_path: Path) -> None:
    with serve_posts(lambda _: (404, "text/plain", b""), ["the toll is four dollars"]) as address:
        cited = {"title": "It costs four dollars.", "place": address, "evidence": "the toll is four dollars"}
        script = {"items": json.dumps({"items": [cited]})}
        config = team({"ann": script}, shape="union", items={"kinds": ["claim"], "sources": True})
        opened = await Team.open(config, home=tmp_path)
        await opened.start()
        read: dict[Owner, str] = {}
        for owner in (COMMAND_LINE_USER, Owner("alice")):
            session = await Session.get_or_create(opened, f"of_{owner.user_id}", owner)
            (merged,) = only(await collect(session.ask(f"What is the toll? {address}")), ItemsMerged)
            read[owner] = merged.items[0].sources[0].problem
            await session.close()
        await opened.close()
    assert read == {COMMAND_LINE_USER: "", Owner("alice"): f"{address} leads into this network, to {address}"}
