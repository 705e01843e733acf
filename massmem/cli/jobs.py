"""`massmem jobs`: what a team can do."""

import json
from typing import Annotated

import typer

from massmem.cli.options import AsJson, offer_jobs
from massmem.cli.streams import notify, write_out
from massmem.config.home import massmem_home
from massmem.config.jobs import find_job, list_jobs, read_job
from massmem.config.projects import find_project
from massmem.core.errors import ConfigError
from massmem.core.text import one_line

app = typer.Typer(no_args_is_help=True, help="List what a team can do: massmem --job NAME.")


@app.command("list")
def list_command(as_json: AsJson = False) -> None:
    """List the jobs: shipped ones, yours in ~/.massmem/jobs, and those of the project in .massmem/jobs."""
    rows: list[dict[str, str]] = []
    for name, path in list_jobs(massmem_home(), find_project()).items():
        try:
            summary = read_job(path).config.summary
        except ConfigError as e:
            notify(f"{name} is left out: {e.problems[0]}")
            continue
        rows.append({"name": name, "summary": one_line(summary), "file": str(path)})
    width = max((len(row["name"]) for row in rows), default=0)
    text = "".join(f"{row['name']:<{width}}  {row['summary']}\n" for row in rows)
    write_out(json.dumps(rows, ensure_ascii=False, indent=2) + "\n" if as_json else text)


@app.command("show")
def show_command(
    name: Annotated[str, typer.Argument(metavar="JOB", help="Its name.", autocompletion=offer_jobs)],
) -> None:
    """Print the file of a job: copy it to .massmem/jobs to change it."""
    job = find_job(name, massmem_home(), find_project())
    notify(str(job.path))
    write_out(job.path.read_text("utf-8"))
