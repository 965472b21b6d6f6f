"""Every verb meets files that are none, and outputs that cannot be written: a sentence and an exit code, never a traceback."""

import contextlib
import io
import os
import resource
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster, Host
from hocket.cli.main import hocket, run
from hocket.members.journal import Generation, Journal, Served
from hocket.planning import search
from tests.cli.commands import leaves
from tests.support.commands import completed

DEEP, DIGITS = 100_000, 5_000
SECRET = bytes(32).hex()

BAD = {
    "empty": b"",
    "no UTF-8": "café = 'ü'\n".encode("latin-1"),
    "deep JSON": b"[" * DEEP,
    "deep objects": b'{"a":' * DEEP,
    "deep TOML": b"a = " + b"[" * DEEP,
    "deep key": b".".join([b"a"] * DEEP) + b" = 1",
    "digits": b'{"version": ' + b"9" * DIGITS + b"}",
    "digits in TOML": b"version = " + b"9" * DIGITS,
    "list": b"[]",
    "object": b"{}",
    "text": b'"x"',
    "cells": b"0,1true0\n",
    "long cell": b"0," + b"1" * 140_000 + b"\n1,0\n",
    "gzip": b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xff\xff\xff",
    "parquet": b"PAR1xxxxPAR1",
}

READING = """
hocket plan --cluster F
hocket plan --cluster good.toml --profile F
hocket plan --cluster good.toml --tuning F
hocket plan --cluster good.toml --from F
hocket plan --cluster good.toml --experience F
hocket order --matrix F
hocket order --matrix good.csv --bandwidth-matrix F
hocket order --cluster F
hocket order --topology F
hocket order --matrix good.csv --hosts F
hocket order --cluster good.toml --plan F
hocket order --cluster good.toml --plan good.json --profile F
hocket simulate all-reduce F
hocket simulate plan --cluster F good.json
hocket simulate plan --cluster good.toml F.json
hocket simulate trace --cluster good.toml F.et
hocket simulate plan --cluster good.toml good.json --profile F
hocket simulate sweep --cluster good.toml --plan F
hocket verify F.json
hocket verify F.xml
hocket verify F.et
hocket verify F.py
hocket verify two_level --cluster F
hocket verify two_level --tuning F
hocket verify two_level --profile F
hocket run --plan F train.py
hocket run --resume F
hocket run --elastic 1:2,journal=F train.py
hocket run --cluster F train.py
hocket run --tuning F train.py
hocket run --policy F.py train.py
hocket check --plan F train.py
hocket profile --from-trace F
hocket probe --hosts good.hosts -o begun
hocket tune --check --tuning F
hocket tune --cluster F
hocket trace convert F.json out.et
hocket trace convert F.et out.json
hocket trace convert F.parquet out.json
hocket trace analyse F.et
hocket trace diff F.json F.json
hocket trace show D
hocket trace replay D
hocket trace replay D --cluster F
hocket report D
hocket join --job-file F train.py
hocket bench all_reduce -n 2 --cluster F
hocket bench all_reduce -n 2 --tuning F
hocket coordinator --elastic 1:2 --listen 127.0.0.1:0 --journal F
hocket coordinator --elastic 1:2 --listen 127.0.0.1:0 --secret-file F
hocket demo --cluster F
hocket testbed run F -- true
hocket testbed up F
""".strip().splitlines()
"""F: a bad file; D: a trace directory whose description is bad."""

WRITTEN = {"-o", "--output", "--svg", "--trace", "--dumps", "--csv", "output", "--keep", "--mpirun"}
"""Options and arguments that name what is written, or a program."""

ELSEWHERE = {
    ("hocket run", "--hosts"), ("hocket profile", "--hosts"), ("hocket probe", "--hosts"), ("hocket tune", "--hosts"),
}  # fmt: skip
"""In tests/launch/test_hosts_files.py: a file with names would be tried over ssh."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("bad")
    cluster = Cluster(hosts=tuple(Host(name=name, bandwidth_bit_per_s=1e9) for name in "ab"))
    files.write(made / "good.toml", cluster)
    files.write(made / "good.json", search.plan(cluster, search.neutral_profile(), 2))
    (made / "good.csv").write_text("0,1,2\n1,0,3\n2,3,0\n")
    (made / "good.hosts").write_text("localhost\n")
    (made / "train.py").write_text("pass\n")
    return made


def said(argv):
    """Exit code and standard error of a command line in this process."""
    told, code = io.TextIOWrapper(io.BytesIO(), write_through=True), 0
    with (
        contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())),
        contextlib.redirect_stderr(told),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(sys, "argv", argv)
        try:
            run(hocket, "hocket")
        except SystemExit as ended:
            code = ended.code
    return code, told.buffer.getvalue().decode()


def lay(folder, name, content):
    """The bad file under all names that a verb tells formats by."""
    for suffix in ("", ".json", ".xml", ".et", ".py", ".parquet", ".txt"):
        (folder / f"{name}{suffix}").write_bytes(content)
    (folder / "begun.unfinished").write_bytes(content or b"[]\n")
    (folder / "D").mkdir(exist_ok=True)
    (folder / "D" / "run.json").write_bytes(content)


@pytest.mark.parametrize("line", READING)
def test_files_that_are_none_end_in_a_sentence(line, folder, monkeypatch):
    """A wrong, damaged or hostile file would end in a page of Python."""
    monkeypatch.chdir(folder)
    for name, content in BAD.items():
        lay(folder, "F", content)
        code, text = said(shlex.split(line))
        if code == 0 and ".et" in line:  # whole messages before the damage are read, and the rest is told
            assert "ends within a message" in text
            continue
        assert code in (1, 2), f"{name}: {code} {text}"
        told = [each for each in text.splitlines() if each.startswith("error: ")]
        assert len(told) == 1, f"{name}: {text}"
        assert len(told[0]) < 500, f"{name}: {told[0][:2000]}"


def test_every_option_that_names_a_file_is_tried():
    """A new verb's file would be read by a reader that nobody has tried."""
    tried = {
        (" ".join(words[:2]), option)
        for line in READING
        for words in [shlex.split(line)]
        for option in words
        if option.startswith("-")
    }
    left = []
    for name, command in leaves().items():
        for parameter in command.params if name.startswith("hocket ") else ():
            names = {*parameter.opts, parameter.name}
            if not isinstance(parameter.type, click.Path) or names & WRITTEN:
                continue
            verb = " ".join(name.split()[:2])
            if isinstance(parameter, click.Argument):
                if not any(line.startswith(f"{name} ") for line in READING):
                    left.append((name, parameter.name))
            elif not {(verb, each) for each in names} & (tried | ELSEWHERE):
                left.append((name, parameter.opts[0]))
    assert left == []


PRINTING = (
    "plan --cluster good.toml --json",
    "order --matrix good.csv",
    "verify two_level --after chunk",
    "simulate plan --cluster good.toml good.json",
    "simulate --help",
    "run true",
)


def printed(line, folder, redirection):
    """Exit code and standard error of a process of its own."""
    command = f"{shlex.quote(sys.executable)} -m hocket {line} {redirection}"
    ran = completed(["bash", "-c", command], cwd=folder)
    return ran.returncode, ran.stderr


@pytest.mark.parametrize("line", PRINTING)
def test_a_full_disk_under_the_output_is_told(line, folder):
    """`hocket plan > plan.txt` on a full disk would end in a traceback, or as if all went well."""
    code, text = printed(line, folder, "> /dev/full")
    if line == "run true":  # prints nothing
        assert code == 0, text
        return
    assert code == 1, text
    assert text.splitlines()[-1] == "error: standard output cannot be written: No space left on device"
    assert "Traceback" not in text


@pytest.mark.parametrize("line", ["plan --cluster good.toml", "run echo hi"])
def test_a_closed_output_is_no_error(line, folder):
    """A verb that runs without a standard output, as some schedulers start it, would end in a traceback."""
    code, text = printed(line, folder, ">&-")
    assert (code, "Traceback" in text) == (0, False), text


def test_a_reader_that_goes_away_before_the_end_is_no_error(folder):
    """`hocket plan | true` would print that Python ignored an exception."""
    code, text = printed("order --matrix good.csv", folder, "| true; exit ${PIPESTATUS[0]}")
    assert (code, text) == (1, "")


def test_an_output_that_cannot_be_written_is_told(folder, monkeypatch):
    """Results would be lost with a traceback."""
    monkeypatch.chdir(folder)
    for line in (
        "hocket plan --cluster good.toml -o /dev/full",
        "hocket plan --cluster good.toml -o good.toml/x",
        "hocket order --matrix good.csv --json -o /dev/full",
        "hocket verify two_level --svg /dev/full",
        "hocket simulate plan --cluster good.toml good.json --trace good.toml/x",
        "hocket report --help/x",
    ):
        code, text = said(shlex.split(line))
        assert code in (1, 2), f"{line}: {text}"
        assert text.startswith("error: "), text


def test_a_journal_that_is_no_text_is_refused(tmp_path):
    """The launcher that is to take over would end in a traceback."""
    path = tmp_path / "journal"
    served = Served(
        host="a", coordinator="a:1", secret=SECRET, command=("x",), settings={}, members_min=1, members_max=2
    )
    generation = Generation(number=1, members=(0,), holders=(0,), next_member=1, epochs_before=0)
    Journal.create(path, served, generation).close(done=False)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"x"', b'"\xff"'))
    code, text = said(["hocket", "run", "--resume", str(path)])
    assert code == 2
    assert f"error: {path} is no journal of an elastic job: " in text


def test_reading_a_small_trace_takes_little_memory(tmp_path):
    """A machine with less than 8 GiB could not read any trace of PyTorch's profiler."""
    (tmp_path / "trace.json").write_text('{"traceEvents": []}')
    source = (
        "from pathlib import Path; from hocket.tools.formats import kineto; kineto.read(Path('trace.json'))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", source],
        cwd=tmp_path,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30)),
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


def test_files_without_an_end_are_refused(folder, monkeypatch):
    """`--cluster /dev/zero` would take all memory of the machine."""
    monkeypatch.setattr("hocket.artefacts.decoding.FILE_BYTES_MAX", 1 << 22)
    monkeypatch.chdir(folder)
    for line in ("hocket plan --cluster /dev/zero", "hocket order --matrix /dev/zero"):
        code, text = said(shlex.split(line))
        assert code == 1
        assert "it has more than 4194304 bytes" in text


def test_hints_name_what_hocket_was_installed_from():
    """`pip install 'hocket[torch]'` would install what somebody else has published under that name."""
    here = Path(__file__).parents[2]
    named = [
        f"{path.relative_to(here)}: {line.strip()}"
        for folder in ("python", "docs")
        for path in (here / folder).rglob("*")
        if path.suffix in (".py", ".md")
        for line in path.read_text().splitlines()
        if "pip install 'hocket" in line or 'pip install "hocket' in line
    ]
    assert named == []
