"""End of a verb that ran a job: what is said about it, and its exit code."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

import click

from hocket.start.outcome import Outcome
from hocket.start.processes import SIGNALLED


def end(job: Callable[[], Outcome]) -> NoReturn:
    """Run the job, and exit as it ended."""
    try:
        outcome = job()
    except KeyboardInterrupt:
        sys.exit(SIGNALLED + signal.SIGINT)
    except BrokenPipeError:  # the reader of our output is gone; do not try to write the buffered rest again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(SIGNALLED + signal.SIGPIPE)
    if outcome.ended is not None:
        click.echo(f"hocket: the job ends: {outcome.ended.why}", err=True)
    for failure in outcome.failures[:1]:
        click.echo(f"hocket: {failure}", err=True)
    sys.exit(outcome.code)
