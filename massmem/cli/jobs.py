"""`massmem jobs`: what a team can do."""

import json
from typing import Annotated

import typer

from massmem.cli.options import AsJson, offer_jobs
from massmem.cli.streams import notify, write_out
from massmem.config.home import massmem_home
from massmem.config.jobs import find_job, read_jobs
from massmem.config.projects import find_project
from massmem.core.text import one_line

app = typer.Typer(no_args_is_help=True, help="List what a team can do: massmem --job NAME.")


@app.command("list")
def list_command(as_json: AsJson = False) -> None:
    """List the jobs: shipped ones, yours, and those of the project."""
    jobs, left_out = read_jobs(massmem_home(), find_project())
    for line in left_out:
        notify(line)
    rows = [{"name": job.name, "summary": one_line(job.config.summary), "file": str(job.path)} for job in jobs]
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
