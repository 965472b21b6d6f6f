"""What the documentation points at is there: files, headings, paths in the text, and commands."""

import re
import shlex
import subprocess
from pathlib import Path

import click

from benches.commands import benches
from hocket.cli.main import hocket

ROOT = Path(__file__).parents[2]

FENCE = re.compile(r"^ *(```|~~~).*?^ *\1 *$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]+`")
LINK = re.compile(
    r"\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)|^\[[^\]]+\]:\s*(\S+)|(?:src|href)=\"([^\"]+)\"", re.MULTILINE
)
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
ELSEWHERE = re.compile(r"[a-z]+:")
PATTERN = re.compile(r"[*{}<>…]")
"""In a path of the text: it stands for several."""
SHELL = re.compile(r"^ *[$#] (.*(?:\bhocket|python -m benches) .*)$", re.MULTILINE)
OPTION = re.compile(r"--?[a-z]")
OURS = ("`hocket ", "`python -m benches ")
NOT_OURS = re.compile(r"--|.*\.(?:py|out)|python|mpirun")
"""From here on the words of a call are another program's."""


def tracked(*patterns: str) -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [name for name in listed.stdout.splitlines() if (ROOT / name).exists()]


def anchors(text: str) -> set[str]:
    """As GitHub makes them: words in lower case with hyphens between, and a number behind those that are there already."""
    found: set[str] = set(re.findall(r"\b(?:id|name)=\"([^\"]+)\"", text))
    times: dict[str, int] = {}
    for heading in HEADING.findall(FENCE.sub("", text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        count = times.get(slug, 0)
        times[slug] = count + 1
        found.add(f"{slug}-{count}" if count else slug)
    return found


def broken(name: str, text: str) -> list[str]:
    """Links of the file `name` that lead nowhere."""
    lost = []
    prose = CODE.sub("", FENCE.sub("", text))
    for link in ("".join(groups) for groups in LINK.findall(prose)):
        if ELSEWHERE.match(link):
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / name).parent / path if path else ROOT / name
        if not target.exists():
            lost.append(f"{name}: {link}: there is no such file")
        elif anchor and anchor not in anchors(target.read_text() if path else text):
            lost.append(f"{name}: {link}: there is no such heading")
    return lost


def test_links_lead_somewhere():
    """A reader would follow a link to nothing."""
    assert [each for name in tracked("*.md") for each in broken(name, (ROOT / name).read_text())] == []


def test_paths_in_the_text_are_there():
    """A reader would look for a file that was moved or removed."""
    folders = "|".join(sorted({name.split("/")[0] for name in tracked() if "/" in name}))
    path = re.compile(rf"(?<![\w./-])(?:{folders})/[^\s`,;:()]+")
    lost = [
        f"{name}: {found}"
        for name in tracked("*.md")
        for code in CODE.findall((ROOT / name).read_text())
        for found in (each.rstrip(".") for each in path.findall(code))
        if not PATTERN.search(found) and not (ROOT / found).exists()
    ]
    assert lost == []


def unknown(call: str) -> list[str]:
    """What of a call of `hocket` or `python -m benches` in the documentation the command line does not have."""
    try:
        words = shlex.split(call, comments=True)
    except ValueError:  # a part of a call, with a quotation mark
        words = call.split()
    root = benches if "benches" in words else hocket
    name = root.name or ""
    words = words[words.index(name) + 1 :] if name in words else []
    command: click.Command = root
    context = click.Context(root, info_name=name, **root.context_settings)
    while isinstance(command, click.Group):
        if not words or not re.fullmatch(r"[a-z][a-z_-]*", words[0]):
            return []
        found = command.get_command(context, words[0])
        if found is None:
            return [f"{context.command_path} {words[0]}"]
        command, context = found, click.Context(found, info_name=words[0], parent=context)
        words = words[1:]
    known = {name for each in command.get_params(context) for name in (*each.opts, *each.secondary_opts)}
    ours = words[: next((at for at, word in enumerate(words) if NOT_OURS.fullmatch(word)), len(words))]
    options = [word.partition("=")[0] for word in ours if OPTION.match(word)]
    return [f"{context.command_path} {option}" for option in options if option not in known]


def calls(page: str) -> list[str]:
    found = [line for block in FENCE.finditer(page) for line in SHELL.findall(block.group())]
    return found + [code.strip("`") for code in CODE.findall(FENCE.sub("", page)) if code.startswith(OURS)]


def test_commands_exist():
    """A reader would type what is written, and be told that there is no such command or option."""
    said = [(name, call) for name in tracked("*.md") for call in calls((ROOT / name).read_text())]
    assert [f"{name}: {each}" for name, call in said for each in unknown(call)] == []


def test_an_unknown_command_is_found():
    """The rule would pass over what it is there for."""
    assert unknown("hocket run -n 4 --plan p.json train.py --epochs 3") == []
    assert unknown("HOCKET_TLS=1 hocket frobnicate --now") == ["hocket frobnicate"]
    assert unknown("python -m benches policies --row ring -o x.json") == []
    assert unknown("python -m benches polices") == ["benches polices"]
    assert unknown("hocket trace analyse x.txt --nothing") == ["hocket trace analyse --nothing"]


def test_a_broken_link_is_found():
    """The rule would pass over what it is there for."""
    text = (
        "# One thing: `hocket run`\n## Twice\n## Twice\n[a](#one-thing-hocket-run) [b](#twice-1) [c](README.md)\n"
        "[d](https://example.org/#x) `[e](nothing.md)`\n```\n[f](nothing.md)\n```\n"
        "[g](#twice-2) [h](nothing.md) [i](README.md#nothing)\n"
    )
    lost = broken("CHANGELOG.md", text)
    assert [each.split(": ")[1] for each in lost] == ["#twice-2", "nothing.md", "README.md#nothing"]
