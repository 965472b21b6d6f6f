"""Without the packages that only parts of Hocket need: a message with the extra that brings them, never a traceback."""

import sys

import pytest

from hocket import extras
from tests.support.commands import WITHOUT_EXTRAS, alone


def without_extras(source, *arguments):
    """(exit code, what it printed) of Python code where none of the extras is installed."""
    ran = alone([sys.executable, "-c", WITHOUT_EXTRAS + source, *arguments])
    return ran.returncode, ran.stdout + ran.stderr


HOCKET = "from hocket.cli.main import main\nmain()"
BENCHES = "from benches.commands import main\nmain()"


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["demo"], "torch"),
        (["bench", "trace"], "torch"),
        (["bench", "all_reduce", "--against", "gloo"], "torch"),
        (["run", "--servers", "1", __file__], "torch"),
        (["trace", "analyse", "TRACE"], "traces"),
    ],
)
def test_a_verb_says_which_extra_it_needs(arguments, extra, tmp_path):
    """Users would see a traceback that ends in `No module named 'torch'`."""
    trace = tmp_path / "trace.parquet"
    trace.write_bytes(b"PAR1")
    arguments = [str(trace) if each == "TRACE" else each for each in arguments]
    code, said = without_extras(HOCKET, *arguments)
    assert code == 2, said
    assert "Traceback" not in said, said
    assert "hint: pip install" in said, said
    assert f"hint: {extras.install(extra)}" in said, said


def test_a_bench_says_what_it_needs():
    """A benchmark of the repository would end in a traceback."""
    code, said = without_extras(BENCHES, "models")
    assert code == 2, said
    assert "Traceback" not in said, said
    assert f"hint: {extras.install('torch')}" in said, said


@pytest.mark.parametrize("framework", ["torch", "jax", "tensorflow", "keras", "ray"])
def test_import_says_which_extra_it_needs(framework):
    """`No module named 'torch'` does not say what of Hocket brings it; programs that try the import go on as before."""
    source = (
        f"try:\n    import hocket.{framework}\nexcept ImportError as error:\n    print(error.name, error)"
    )
    code, said = without_extras(source)
    assert (code, said.splitlines()) == (
        0,
        [
            f"{framework} hocket.{framework} needs {framework}, which is not installed",
            f"hint: {extras.install(framework)}",
        ],
    )


def test_help_of_all_verbs_needs_no_extra():
    """`hocket VERB --help` would end in a traceback on a machine that only plans."""
    source = (
        "import click\nfrom hocket.cli.main import hocket\nwith click.Context(hocket) as context:\n"
        "    for name in hocket.list_commands(context):\n        hocket.get_command(context, name)\n        print(name)"
    )
    code, said = without_extras(source)
    assert code == 0, said
    assert {"bench", "demo", "run", "trace", "tune", "verify"} <= set(said.split())
