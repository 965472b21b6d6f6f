"""`hocket program`: show what a plan, or another system's program, compiles to, after any pass, and whether it may run."""

from __future__ import annotations

import json
from pathlib import Path

import click

from hocket._native import Program
from hocket.artefacts import files
from hocket.artefacts.plan import Plan
from hocket.errors import UsageError
from hocket.formats import chakra_program, foreign_program, msccl
from hocket.formats.svg import svg as draw
from hocket.planners.compile import stages

FOREIGN = (".xml", ".et")
"""How the names of other systems' programs end."""


@click.command("program")
@click.argument("plan", type=click.Path(path_type=Path))
@click.option(
    "--bucket", type=click.IntRange(0), default=0, show_default=True, help="Which bucket's program."
)
@click.option(
    "--chunk-elements",
    type=click.IntRange(1),
    default=1024,
    show_default=True,
    help="Elements (f32) of a chunk of MSCCL's.",
)
@click.option("--rank", type=click.IntRange(0), help="One rank's part alone.")
@click.option("--after", "stage", help="The stage to show; default: the last. `--after list` lists them.")
@click.option("--svg", type=click.Path(path_type=Path), help="Write the dataflow graph here instead.")
@click.option("--json", "as_json", is_flag=True, help="Print the ops as JSON.")
def command(
    *,
    plan: Path,
    bucket: int,
    chunk_elements: int,
    rank: int | None,
    stage: str | None,
    svg: Path | None,
    as_json: bool,
) -> None:
    """Print the program of one bucket of PLAN, verified.

    PLAN may also be another system's program: MSCCL's FILE.xml, or one rank's FILE.et of a custom collective of Chakra's.

    Example: hocket program plan.json --bucket 0 --rank 1 --after lower
    """
    made = _foreign(plan, chunk_elements) if plan.suffix in FOREIGN else _planned(plan, bucket)
    world = next(iter(made.values())).world
    if rank is not None and rank >= world:
        raise UsageError(f"the program is for {world} ranks: there is no rank {rank}")
    if stage == "list":
        click.echo("\n".join(made))
        return
    if stage is not None and stage not in made:
        raise UsageError(f"there is no stage `{stage}`\nhint: there are {', '.join(made)}")
    program = made[stage or list(made)[-1]]
    program.verify()
    if svg is not None:
        svg.write_text(draw(program, ranks=None if rank is None else [rank]))
        click.echo(f"wrote {svg}")
        return
    if as_json:
        wanted = range(program.world) if rank is None else [rank]
        click.echo(json.dumps({each: program.ops(each) for each in wanted}))
        return
    text = str(program)
    if rank is not None:
        head, *parts = text.split("\nrank ")
        text = f"{head}\nrank {parts[rank]}"
    click.echo(text)


def _planned(plan: Path, bucket: int) -> dict[str, Program]:
    loaded = files.read(plan, Plan)
    if bucket >= len(loaded.buckets):
        raise UsageError(f"the plan has {len(loaded.buckets)} buckets: there is no bucket {bucket}")
    return stages(loaded, bucket)


def _foreign(path: Path, chunk_elements: int) -> dict[str, Program]:
    if path.suffix == ".xml":
        return {"read": foreign_program.program(msccl.read(path), chunk_elements)}
    return {"read": foreign_program.program(*chakra_program.read(path))}
