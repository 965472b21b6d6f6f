"""What MkDocs adds to docs/: the pages at the repository's root, and reference pages made from the code.

Links to files of the repository that are not pages become plain text, since the site does not have them.
"""

from __future__ import annotations

import dataclasses
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from hocket.cli.main import hocket
from hocket.settings import Settings

ROOT = Path(__file__).parent.parent
HOME = "README.md"
AT_ROOT = {
    HOME: "index.md",
    "SECURITY.md": "SECURITY.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
}
"""Pages at the repository's root, and what they are on the site."""

LINK = re.compile(r"(?P<text>!?\[(?:[^\[\]]|\[[^\[\]]*\])*\])\((?P<target>[^)\s]+)\)")
FENCE = re.compile(r"(^ *```.*?^ *```[^\n]*$)", re.MULTILINE | re.DOTALL)

OBJECTS = {
    "training": (
        "Training",
        (
            "hocket.torch.distribute.distribute",
            "hocket.tools.run.function.run",
            "hocket.torch.in_training.join",
            "hocket.torch.no_sync",
            "hocket.torch.reduce_gradients",
            "hocket.torch.clip_grad_norm_",
            "hocket.torch.rank",
            "hocket.torch.world",
            "hocket.torch.log",
            "hocket.torch.record",
            "hocket.torch.agreed",
            "hocket.torch.loop.epochs",
            "hocket.torch.loop.batches",
            "hocket.torch.loop.on_change",
            "hocket.training.loop.changes.Change",
            "hocket.torch.loop.scale_lr",
            "hocket.torch.loop.leave",
            "hocket.torch.loop.extra_state",
            "hocket.torch.ddp_hook.ddp_hook",
            "hocket.torch.ParameterServer",
        ),
    ),
    "policies": (
        "Policies",
        (
            "hocket.Policy",
            "hocket.policy.context.Context",
            "hocket.kernel",
            "hocket.library_kernel",
            "hocket.testing.run",
            "hocket.testing.trace",
            "hocket.testing.Result",
            "hocket.testing.check_kernel",
        ),
    ),
    "planning": (
        "Measuring and planning",
        (
            "hocket.artefacts.cluster",
            "hocket.artefacts.profile",
            "hocket.artefacts.plan",
            "hocket.planning.search.plan",
            "hocket.planning.search.built_by",
            "hocket.Builder",
            "hocket.planning.job.Job",
            "hocket.planning.hosts.Host",
            "hocket.planning.ordering.solve.solve",
            "hocket.tools.simulation.fidelity.predict",
            "hocket.tools.simulation.networks",
        ),
    ),
    "errors": ("Errors", ("hocket.errors",)),
}
"""Page of the reference: its title, and the objects whose docstrings it shows."""


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are not in docs/."""
    from mkdocs.structure.files import File  # noqa: PLC0415  # tests use `relinked` without MkDocs

    pages = {site: (ROOT / name).read_text() for name, site in AT_ROOT.items()}
    for page, (title, objects) in OBJECTS.items():
        pages[f"reference/{page}.md"] = (
            f"# {title}\n\n" + "\n\n".join(f"::: {each}" for each in objects) + "\n"
        )
    pages["reference/commands.md"] = commands()
    pages["reference/variables.md"] = variables()
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, files: Any, **_: Any) -> str:
    """Links as they are in the repository become links of the site."""
    name = page.file.src_uri
    source = next((root for root, site in AT_ROOT.items() if site == name), f"docs/{name}")
    known = {each.src_uri for each in files}
    parts = FENCE.split(markdown)
    return "".join(
        part if part.lstrip().startswith("```") else relinked(part, source, known) for part in parts
    )


def relinked(text: str, source: str, known: set[str]) -> str:
    """`text` of the repository's file `source` with its links as those of the site, whose pages and images are `known`.

    >>> relinked("[a](docs/x.md#y) [`b`](crates/z.rs) [c](https://d.e)", "README.md", {"x.md"})
    '[a](x.md#y) `b` [c](https://d.e)'
    """

    def replaced(found: re.Match[str]) -> str:
        path, hash_sign, anchor = found["target"].partition("#")
        if not path or ":" in path:
            return found.group()
        in_repository = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        site = AT_ROOT.get(in_repository, in_repository.removeprefix("docs/"))
        if site in known:
            return f"{found['text']}({site}{hash_sign}{anchor})"
        return found["text"].removeprefix("!").removeprefix("[").removesuffix("]")

    return LINK.sub(replaced, text)


def commands() -> str:
    """What `--help` prints, for every command."""
    top = click.Context(hocket, info_name="hocket", **hocket.context_settings)
    return "# Commands\n\n" + "\n".join(_helped(hocket, top))


def _helped(command: click.Command, context: click.Context) -> Iterator[str]:
    context.max_content_width = context.terminal_width = 100
    level = "###" if context.parent and context.parent.parent else "##"
    yield f"{level} {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None  # noqa: S101  # it was listed
            yield from _helped(found, click.Context(found, info_name=name, parent=context))


def variables() -> str:
    """The table of every environment variable that Hocket reads."""
    rows = [
        f"| `{each.metadata['name']}` | {'' if each.default is None else each.default} | {each.metadata['doc']} |"
        for each in dataclasses.fields(Settings)
    ]
    return (
        "# Environment variables\n\n| variable | default | what it is |\n| --- | --- | --- |\n"
        + "\n".join(rows)
        + "\n"
    )
