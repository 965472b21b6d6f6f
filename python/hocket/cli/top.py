"""`hocket top`: a live look at a running job: which rank is late, and why."""

from __future__ import annotations

import contextlib
import sys
import time

import click
import msgspec
from rich.console import Console

from hocket.cli.shared.options import json_option
from hocket.cli.shared.values import SECONDS
from hocket.errors import RendezvousError, StoreGoneError, UsageError
from hocket.job.dumps.demand import demand
from hocket.job.live.blame import ranks_in_words
from hocket.job.live.files import newest
from hocket.job.live.observer import Observer, View
from hocket.job.live.stack import asked
from hocket.tools.top.find import job_of
from hocket.tools.top.screen import ENDED, watch
from hocket.tools.top.table import ORDERS, rendered

RANKS_SHOWN = 64
COLUMNS = 160
"""Width of the table where there is no terminal."""


@click.command("top")
@click.argument("job", required=False)
@click.option("--once", is_flag=True, help="Look once, and print that. Also without a terminal.")
@click.option(
    "--stack", "stack_of", type=click.IntRange(0), metavar="RANK", help="Print the Python stack of that rank."
)
@click.option(
    "--dump", "dumps", is_flag=True, help="Have each rank write a dump to HOCKET_DUMPS, for `fr_trace`."
)
@click.option(
    "--interval",
    "interval_s",
    type=SECONDS,
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between looks.",
)
@json_option
def command(
    *,
    job: str | None,
    once: bool,
    stack_of: int | None,
    dumps: bool,
    interval_s: float,
    as_json: bool,
) -> None:
    """Look at a running job: what each rank does, its step, waits, data loading, traffic and memory, and who is late.

    JOB is the process of a job of yours on this machine, as the list of several jobs shows it, or the ADDRESS:PORT of its store
    (HOCKET_SECRET is then the job's). Without it, the only job of yours here. With --json, one object a look, a line each.

    \b
    Example: hocket top
    Example: hocket top --once --json | jq .blame
    Example: hocket top 4711 --stack 2
    """
    if stack_of is not None and as_json:
        raise UsageError(
            "--stack prints text\nhint: leave --json out; the object of a rank has its `stack` once it was asked for"
        )
    found = job_of(job)
    with contextlib.closing(Observer(lambda: newest(found))) as observer:
        if stack_of is not None:
            click.echo(asked(observer, stack_of).rstrip())
        elif dumps:
            _dump(observer)
        elif as_json:
            _as_json(observer, None if once else interval_s)
        elif once or not (sys.stdout.isatty() and sys.stdin.isatty()):
            console = Console(width=None if sys.stdout.isatty() else COLUMNS, highlight=False)
            console.print(rendered(observer.look(), ORDERS[0], title=str(found)))
        else:
            with contextlib.suppress(EOFError):
                _say(watch(observer, Console(), interval_s=interval_s, title=str(found)))


def _dump(observer: Observer) -> None:
    """Have all ranks write dumps, and print which have."""
    if not any(seen.status.writes_dumps for seen in observer.look().ranks.values()):
        raise UsageError(
            "the job's ranks write no dumps\nhint: start it by `hocket run --dumps DIR`, or with HOCKET_DUMPS"
        )
    written, lacking = demand(observer)
    click.echo(f"written by {ranks_in_words(written, RANKS_SHOWN) if written else 'no rank'}")
    if lacking:
        which = ranks_in_words(lacking, RANKS_SHOWN)
        raise RendezvousError(
            f"no dump of {which}: stopped, or in native code that holds Python's lock\n"
            "hint: `fr_trace --allow-incomplete-ranks` reads the others"
        )


def _as_json(observer: Observer, interval_s: float | None) -> None:
    """Print an object, or one in each interval until the job ends."""
    view = observer.look()
    _print(view)
    while interval_s is not None and view.ended is None:
        time.sleep(interval_s)
        try:
            view = observer.look()
        except StoreGoneError:
            _say(ENDED)
            return
        _print(view)
    if view.ended is not None:
        _say(f"{ENDED}: {view.ended}")


def _print(view: View) -> None:
    click.echo(msgspec.json.encode(view).decode())
    sys.stdout.flush()


def _say(text: str) -> None:
    if text:
        click.echo(f"hocket: {text}", err=True)
