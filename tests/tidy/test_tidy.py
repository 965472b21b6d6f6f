"""The rules of the house that a program can check."""

import ast
import re
import subprocess
import sys
from pathlib import Path

from hocket import _native

ROOT = Path(__file__).parents[2]
LINES_MAX = 500
"""More is several concepts in one file."""

PROSE_MAX = 120
"""Characters of a line of the documentation; tables, code, headings and images are as long as they are."""

GENERATED = ("docs/torch-tests.md", "docs/torchft-tests.md")
UNSAFE = (
    "crates/fabric/",
    "crates/wire/",
    "crates/kernels/",
    "crates/xla/",
    "crates/tensorflow/",
    "crates/python/",
)


def tracked(*suffixes):
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.splitlines() if name.endswith(suffixes) and (ROOT / name).exists()]


def text(name):
    return (ROOT / name).read_text()


def test_files_are_of_one_concept():
    """A reader would have to hold several things in mind to change one."""
    lines = {name: len(text(name).splitlines()) for name in tracked(".rs", ".py", ".js")}
    assert {name: count for name, count in lines.items() if count > LINES_MAX} == {}


def test_lines_of_prose_can_be_read():
    """A change of a word would be a change of a paragraph, and a reader of the source would scroll sideways."""
    long = []
    for name in tracked(".md"):
        prose = re.sub(r"^ *```.*?^ *```", "", text(name), flags=re.MULTILINE | re.DOTALL)
        wide = (
            line for line in prose.splitlines() if len(line) > PROSE_MAX and not re.match(r"\s*[|#!]", line)
        )
        long += [f"{name}: {line}" for line in wide if name not in GENERATED]
    assert long == []


def test_files_say_what_they_are_for():
    """A newcomer could not tell from its first lines what a file is for."""
    silent = [
        name
        for name in tracked(".py")
        if text(name).strip() and ast.get_docstring(ast.parse(text(name))) is None
    ]
    silent += [name for name in tracked(".rs") if not text(name).startswith(("//!", "#!"))]
    assert silent == []


def test_nothing_is_left_for_later():
    """Work that somebody forgot would ship as a comment."""
    pattern = re.compile(r"\b(TODO|FIXME|XXX|todo!|unimplemented!|#\[allow)")
    found = [
        name
        for name in tracked(".rs", ".py", ".js")
        if name != "tests/tidy/test_tidy.py" and pattern.search(text(name))
    ]
    assert found == []


def test_unsafe_code_stays_where_it_belongs():
    """Memory errors could come from anywhere."""
    found = [
        name
        for name in tracked(".rs")
        if re.search(r"^[^/]*\bunsafe\b(?!_)", text(name), re.MULTILINE) and not name.startswith(UNSAFE)
    ]
    assert found == []


def test_no_path_or_address_of_one_machine():
    """The project would build or run on one machine alone."""
    pattern = re.compile(r"(?<![\w.])/(home/\w+|root|work)/|https?://[\w.]*(pypi|crates)[\w.]*/")
    found = [
        name
        for name in tracked(".rs", ".py", ".toml", ".txt", ".md", ".yml", "Makefile", "run")
        if name != "tests/tidy/test_tidy.py" and pattern.search(text(name))
    ]
    assert found == []


def test_importing_hocket_is_light():
    """`hocket --help` would take seconds, and need PyTorch."""
    heavy = {"torch", "jax", "jaxlib", "tensorflow", "keras", "ray", "numpy", "sklearn", "rich"}
    script = f"import sys, hocket, hocket.cli.main; print(*{heavy} & set(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == ""


def test_the_extension_is_linked_to_no_framework():
    """It would not load beside another version of the framework, or without it."""
    file = _native.__file__
    symbols = subprocess.run(["nm", "-D", file], capture_output=True, text=True, check=True).stdout
    assert "PyInit__native" in symbols
    pattern = re.compile(
        r"\b(XLA_|TF_|TFE_|PJRT_|THP|nccl)\w*|\b_ZN\w*(?:torch|tensorflow|xla|tsl|at|c10)\d+\w*"
    )
    assert pattern.findall(symbols) == []
    needed = subprocess.run(["readelf", "-d", file], capture_output=True, text=True, check=True).stdout
    libraries = re.findall(r"\(NEEDED\).*\[(.+?)\]", needed)
    assert libraries
    system = ("ld-linux", "libc.", "libdl.", "libgcc_s.", "libm.", "libpthread.", "librt.")
    assert [each for each in libraries if not each.startswith(system)] == []


def test_training_loads_no_framework():
    """Training with another framework than PyTorch would need PyTorch."""
    names = sorted(
        name.removeprefix("python/").removesuffix(".py").replace("/", ".")
        for name in tracked(".py")
        if name.startswith("python/hocket/training/") and not name.endswith("__init__.py")
    )
    assert names
    script = f"import sys, {', '.join(names)}; print(*{{'torch', 'jax', 'tensorflow'}} & set(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == ""


def test_nothing_waits_by_a_clock_that_is_set():
    """A step of the clock (NTP, a resumed virtual machine) would end a job's waits at once, or make them endless.

    In Rust, clippy refuses `SystemTime::now`; a date may be written down, nothing else."""
    pattern = re.compile(
        r"\btime\.time(_ns)?\(|\bfrom time import .*\btime\b|CLOCK_REALTIME|ClockId::Realtime"
    )
    found = [
        name
        for name in tracked(".rs", ".py")
        if name.startswith(("crates/", "python/")) and pattern.search(text(name))
    ]
    assert found == []
