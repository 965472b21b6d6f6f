"""Options that several verbs share, each once: one spelling, one kind of value."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click

from hocket.artefacts.promise import promise_of
from hocket.artefacts.writing import makeable
from hocket.cli.shared.values import COUNTS, STEPS, TRACE_BYTES, One, Word
from hocket.start.processes import ProcessSpec
from hocket.start.remote import SSH, processes_over, store_for

Command = TypeVar("Command", bound=Callable[..., Any])


class Option(Protocol):
    """Decorator that adds an option to a command."""

    def __call__(self, command: Command, /) -> Command:
        """Return the command, with the option."""


FILE = click.Path(path_type=Path, dir_okay=False)
DIR = click.Path(path_type=Path, file_okay=False)


def file_option(*names: str, text: str, metavar: str = "FILE", **more: Any) -> Option:
    return click.option(*names, type=FILE, metavar=metavar, help=text, **more)


def dir_option(*names: str, text: str, **more: Any) -> Option:
    """Return an option that names a directory."""
    return click.option(*names, type=DIR, metavar="DIR", help=text, **more)


def world_option(text: str = "Number of ranks.", *, least: int = 1, default: int | None = None) -> Option:
    """Return `-n`: number of ranks."""
    return click.option(
        "-n",
        "--world",
        type=click.IntRange(least),
        metavar="N",
        default=default,
        show_default=default is not None,
        help=text,
    )


def worlds_option(text: str) -> Option:
    """Return `-n` of a verb that answers for several numbers of ranks."""
    return click.option("-n", "--world", "worlds", type=COUNTS, metavar="N,...", help=text)


def hosts_option(text: str) -> Option:
    """Return `--hosts`: a hosts file, or hosts."""
    return file_option("--hosts", text=text, metavar="FILE|HOST:N,...")


ssh_option = click.option(
    "--ssh",
    default=SSH,
    show_default=True,
    metavar="COMMAND",
    help="Command that reaches a host; its name is appended.",
)

python_option = click.option(
    "--python",
    "interpreter",
    default=sys.executable,
    metavar="COMMAND",
    help="Python of the ranks.  [default: this one]",
)

store_option = click.option(
    "--store",
    metavar="ADDRESS[:PORT]",
    help="Address of this machine that all hosts reach.  [default: found]",
)


@dataclass(frozen=True)
class Remote:
    """Machines on which ranks are started over ssh, if there are `hosts`."""

    hosts: Path | None
    ssh: str
    interpreter: str
    store: str | None

    def processes(self, names: Sequence[str], argv: Sequence[str]) -> list[ProcessSpec]:
        """Return specifications of `argv` on each of these hosts, by rank."""
        return processes_over(self.ssh, names, argv, self.interpreter)

    def store_for(self, names: Sequence[str]) -> str:
        """Return `HOST:PORT` of the store as these hosts reach it."""
        return store_for(names, self.store, self.ssh)


def remote_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add options that start ranks on other machines, as `remote`: `--hosts`, `--ssh`, `--python`, `--store`."""

    @functools.wraps(command)
    def with_remote(
        *, hosts: Path | None, ssh: str, interpreter: str, store: str | None, **others: Any
    ) -> None:
        command(remote=Remote(hosts, ssh, interpreter, store), **others)

    with_hosts = hosts_option(
        "Hosts file, `NAME [slots=N]` a line, or hosts: ranks are started over ssh.  [default: this machine]"
    )
    return with_hosts(ssh_option(python_option(store_option(with_remote))))


def trace_bounds_options(command: Command) -> Command:
    """Add options that bound a job's trace: `--trace-steps`, `--trace-bytes`."""
    size = click.option(
        "--trace-bytes",
        type=TRACE_BYTES,
        metavar="SIZE",
        help="With --trace: size up to which each rank's file of events grows, such as 100M.  [default: 4 GiB]",
    )
    steps = click.option(
        "--trace-steps",
        type=STEPS,
        metavar="A:B",
        help="With --trace: record the events of steps A to B-1 alone; `A:` and `:B` as in Python.  [default: all]",
    )
    return steps(size(command))


def cluster_option(text: str = "Cluster file (TOML).", *, required: bool = False) -> Option:
    """Return `--cluster`: a file from `hocket probe`, or written by hand."""
    return file_option("--cluster", "cluster_path", required=required, text=text)


def profile_option(
    text: str = "Profile file (JSON) of `hocket profile`.  [default: a neutral one]",
) -> Option:
    """Return `--profile`: a model's gradients and when they are ready."""
    return file_option("--profile", "profile_path", text=text)


def plan_option(text: str) -> Option:
    """Return `--plan`: a file from `hocket plan`."""
    return file_option("--plan", "plan_path", text=text)


def promise_option_of(default: str) -> Option:
    """Return `--promise` of a verb with that default."""
    return click.option(
        "--promise",
        type=One("promise", "a promise", promise_of),
        metavar="PROMISE",
        help="How far results may be from DDP's: `exact`, `rounded` (f16 on slow links), `merged,merge=2` (larger batches), or "
        f"`delayed,delay=1` (late means, own gradients first).  [default: {default}]",
    )


promise_option = promise_option_of("exact")


def tuning_option(
    text: str = "Tuning file (JSON) of `hocket tune`.  [default: the one that comes with Hocket]",
) -> Option:
    """Return `--tuning`: decides the choice of algorithms."""
    return file_option("--tuning", "tuning_path", text=text)


def algorithm_option(known: Sequence[str], default: str, text: str) -> Option:
    """Return `--algorithm`: the algorithm of a collective."""
    return click.option(
        "--algorithm", type=Word(known), default=default, show_default=True, metavar="NAME", help=text
    )


fidelity_option = click.option(
    "--fidelity",
    type=click.Choice(["flow", "closed-form", "simgrid"]),
    default="flow",
    show_default=True,
    help="Every message, a formula, or every message in SimGrid, which must be installed.",
)

ray_option = click.option(
    "--ray",
    "ray_address",
    metavar="ADDRESS",
    help="Simulate on the Ray cluster there; `auto` is this machine's.",
)

seed_option = click.option(
    "--seed",
    type=click.IntRange(0, (1 << 64) - 1),
    default=0,
    show_default=True,
    metavar="N",
    help="All randomness derives from it.",
)


def rounds_option(default: int, text: str = "Turns of each contender.") -> Option:
    """Return `--rounds`: number of measurements of everything."""
    return click.option(
        "--rounds", type=click.IntRange(1), default=default, show_default=True, metavar="N", help=text
    )


def checked(_context: click.Context, _option: click.Parameter, path: Path | None) -> Path | None:
    """Return the path if its folder exists: fails before minutes are spent on a result that could not be written."""
    if path is not None and not path.absolute().parent.is_dir():
        raise click.BadParameter(f"{path} cannot be written: there is no folder {path.absolute().parent}")
    return path


def made(_context: click.Context, _option: click.Parameter, path: Path | None) -> Path | None:
    """Check an option by `makeable`."""
    return None if path is None else makeable(path)


def output_option(text: str, **more: Any) -> Option:
    """Return `-o`: the file to write."""
    return file_option("-o", "--output", text=text, callback=checked, **more)


json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print the result as JSON, and nothing else, on standard output."
)

svg_option = file_option("--svg", "svg_path", text="Also draw it here, as SVG.", callback=checked)
