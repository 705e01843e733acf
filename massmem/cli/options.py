"""Options that several commands have."""

from typing import Annotated

import typer

from massmem.cli.completion import offer_sessions

Config = Annotated[str | None, typer.Option(metavar="FILE", help="The team, as for a question.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
InSession = Annotated[
    str | None,
    typer.Option(
        metavar="SESSION", help="In this session only: id, start of the id, or name.", autocompletion=offer_sessions
    ),
]
