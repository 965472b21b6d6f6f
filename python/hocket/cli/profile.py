"""`hocket profile`: measure a training step of a script, without communication, and write it as a profile file.

Or take it from a trace of PyTorch's profiler, where the job has run elsewhere.
"""

from __future__ import annotations

from pathlib import Path

import click
from rich.table import Table

from hocket.artefacts import files
from hocket.artefacts.profile import Profile
from hocket.cli.shared.options import Remote, json_option, output_option, remote_options, world_option
from hocket.cli.shared.output import publish
from hocket.cli.shared.refuse import refuse
from hocket.errors import Error, UsageError
from hocket.settings import Settings
from hocket.start import hosts as hosts_file
from hocket.start.processes import ProcessSpec
from hocket.start.run import launch
from hocket.start.script import argv_of
from hocket.tools.formats import kineto_buckets
from hocket.tools.formats.kineto_buckets import Profiled

GRADIENTS_SHOWN = 10


@click.command("profile", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@world_option("Ranks, side by side as in the job.  [default: 1, or all slots of --hosts]")
@remote_options
@output_option("Write the profile here (JSON).", default="profile.json", show_default=True)
@json_option
@click.option("-m", "as_module", is_flag=True, help="SCRIPT is a module's name.")
@click.option(
    "--from-trace",
    "trace",
    type=click.Path(path_type=Path),
    help="Instead of running a script: a DDP job's trace of PyTorch's profiler, or a directory with every rank's.",
)
@click.argument("script", required=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(
    *,
    world: int | None,
    remote: Remote,
    output: Path,
    as_json: bool,
    as_module: bool,
    trace: Path | None,
    script: str | None,
    arguments: tuple[str, ...],
) -> None:
    """Run SCRIPT for some steps, time its parts and each gradient, and stop it.

    The script must call hk.distribute; its gradients are not synchronised meanwhile. With --hosts, rank 0 writes the file, on
    the first host.

    A trace has no names of parameters: its profile's gradients are DDP's buckets.

    Example: hocket profile -n 4 -o profile.json train.py --batch 32
    """
    if trace is not None:
        given = {
            "-n": world,
            "--hosts": remote.hosts,
            "--store": remote.store,
            "-m": as_module or None,
            "SCRIPT": script,
        }
        refuse(given, list(given), "--from-trace runs nothing")
        found = kineto_buckets.profiled(trace)
        files.write(output, found.profile)
        publish(_shown_trace(found, output), found, as_json=as_json)
        return
    if script is None:
        raise UsageError("there is nothing to profile\nhint: name a script, or a trace with --from-trace")
    argv = argv_of(
        script,
        arguments,
        interpreter=remote.interpreter,
        as_module=as_module,
        elsewhere=remote.hosts is not None,
    )
    output.unlink(missing_ok=True)
    processes, store = [ProcessSpec(argv=argv)] * (world or 1), remote.store
    if remote.hosts is not None:
        names = hosts_file.place(hosts_file.read(remote.hosts), world)
        processes, store = remote.processes(names, argv), remote.store_for(names)
    outcome = launch(processes, settings=Settings(profile_out=str(output.absolute())), store=store)
    if outcome.failures:
        raise Error(f"the script failed while it was profiled: {outcome.failures[0]}")
    if not output.exists():
        raise UsageError(
            f"{script} ended before enough steps were measured\n"
            "hint: it must call hk.distribute(model, optimizer) and take at least 10 steps"
        )
    profile = files.read(output, Profile)
    publish(_shown(profile, output), profile, as_json=as_json)


def _shown(profile: Profile, output: Path) -> list[Table | str]:
    parts = Table("part of a step", "ms")
    for name in ("forward_s", "backward_s", "optimizer_s", "step_s"):
        parts.add_row(name.removesuffix("_s"), f"{getattr(profile, name) * 1e3:.2f}")
    total = sum(gradient.elements for gradient in profile.gradients)
    table = Table("gradient", "shape", "type", "ready after", "needed after")
    for each in sorted(profile.gradients, key=lambda gradient: gradient.ready_s)[:GRADIENTS_SHOWN]:
        shape = " × ".join(map(str, each.shape))  # noqa: RUF001  # the sign for extents
        table.add_row(
            each.name, shape, each.dtype, f"{each.ready_s * 1e3:.2f} ms", f"{each.needed_s * 1e3:.2f} ms"
        )
    return [
        parts,
        f"{profile.model}: {len(profile.gradients)} gradients, {total:,} elements; the first ones to be ready:",
        table,
        f"Profile written to {output}",
    ]


def _shown_trace(found: Profiled, output: Path) -> list[Table | str]:
    profile = found.profile
    table = Table(
        "bucket", "elements", "type", "forward", "backward", "transfer", "ready after", "needed after"
    )
    for bucket, gradient in zip(found.buckets, reversed(profile.gradients), strict=True):
        table.add_row(
            gradient.name,
            f"{bucket.elements:,}",
            bucket.dtype,
            f"{bucket.forward_s * 1e3:.2f} ms",
            f"{bucket.backward_s * 1e3:.2f} ms",
            f"{'≤ ' if bucket.upper_bound else ''}{bucket.transfer_s * 1e3:.2f} ms",
            f"{gradient.ready_s * 1e3:.1f} ms",
            f"{gradient.needed_s * 1e3:.1f} ms",
        )
    return [
        *(f"note: {remark}" for remark in found.remarks),
        f"{profile.model}: {profile.steps} steps of {profile.step_s * 1e3:.1f} ms without communication, {profile.world} ranks; "
        "forward, backward and transfer are times of kernels:",
        table,
        f"Profile written to {output}",
    ]
