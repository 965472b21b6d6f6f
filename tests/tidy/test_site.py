"""The documentation as a site: what can be checked of it without MkDocs, which `make docs` runs."""

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def hook():
    """`scripts/site.py`, which MkDocs loads by its path."""
    spec = importlib.util.spec_from_file_location("site_hook", ROOT / "scripts/site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_is_in_the_navigation():
    """A page would be on the site and nobody would find it."""
    site = hook()
    listed = re.findall(r"^ +- (?:[^:\n]+: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} | set(site.AT_ROOT.values())
    assert sorted(each for each in listed if not each.startswith("reference/")) == sorted(pages)


def test_links_are_those_of_the_site():
    """A reader of the site would follow a link into a repository that is not there."""
    site = hook()
    known = {"index.md", "training.md", "SECURITY.md", "report.png"}
    readme = "[a](docs/training.md#x) ![b](docs/report.png) [`c`](crates/ids) [d](https://e.org/#f) [g](#h)"
    there = "[a](training.md#x) ![b](report.png) `c` [d](https://e.org/#f) [g](#h)"
    assert site.relinked(readme, "README.md", known) == there
    guide = "[a](../SECURITY.md) [b](../README.md#c) [d](training.md) [e `f`](../python/x.py)"
    assert (
        site.relinked(guide, "docs/x.md", known) == "[a](SECURITY.md) [b](index.md#c) [d](training.md) e `f`"
    )
    assert site.relinked(readme, "docs/x.md", set()) == "a b `c` [d](https://e.org/#f) [g](#h)"


def test_every_command_is_in_the_reference():
    """The reference would leave out a command that somebody added."""
    site = hook()
    text = site.commands()
    for verb in site.hocket.list_commands(None):
        assert f"\n## hocket {verb}\n" in text
    assert "\n### hocket bench all_reduce\n" in text
    assert "`HOCKET_TIMEOUT_S` | 300.0 |" in site.variables()
