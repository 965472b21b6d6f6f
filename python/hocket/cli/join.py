"""`hocket join`: a process becomes a rank of a running elastic job."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from hocket.cli.shared.options import python_option
from hocket.errors import UsageError
from hocket.start import running
from hocket.start.script import argv_of


@click.command("join", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--job",
    "process",
    type=int,
    metavar="PID",
    help="Of `hocket run` or `hocket coordinator`, on this machine.  [default: the only one of yours here]",
)
@click.option(
    "--job-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Of a job that was started on another machine, copied from there.",
)
@python_option
@click.option("-m", "as_module", is_flag=True, help="SCRIPT is a module's name.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(
    *,
    process: int | None,
    job_file: Path | None,
    interpreter: str,
    as_module: bool,
    script: str,
    arguments: tuple[str, ...],
) -> None:
    """Run SCRIPT as one more rank of an elastic job of `hocket run` or `hocket coordinator`; its options come after it.

    The job's ranks go on training until SCRIPT has built its model. They meet it at the end of a step, and it goes on from
    their state and with their place in the data. SCRIPT is the job's own.

    Example: hocket join train.py --epochs 3
    """
    if process is not None and job_file is not None:
        raise UsageError("--job and --job-file: each names a job\nhint: leave one of them out")
    job = running.chosen(process) if job_file is None else running.read(job_file)
    argv = argv_of(script, arguments, interpreter=interpreter, as_module=as_module, elsewhere=False)
    click.echo(
        f"hocket: process {os.getpid()} joins job {job.process}, when its script has built the model",
        err=True,
    )
    sys.stderr.flush()
    try:
        os.execvpe(argv[0], argv, job.for_newcomer(os.environ))  # noqa: S606  # what the user asks for
    except OSError as error:
        raise UsageError(f"{argv[0]} cannot be run: {error.strerror}") from None
