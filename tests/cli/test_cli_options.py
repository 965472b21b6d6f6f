"""One spelling per option, one kind of value per spelling, in all commands."""

import os
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from hocket.cli.main import hocket
from hocket.cli.shared import values
from tests.cli.commands import leaves

OTHERS = {
    ("hocket simulate all-reduce", "--algorithm"),
    ("hocket simulate plan", "--bandwidth"),
    ("hocket simulate sweep", "--world"),
    ("hocket simulate trace", "--world"),
    ("python -m benches models", "--servers"),
    ("hocket demo", "--output"),
}
"""Where a list stands for what takes one value elsewhere, and a folder of files for one."""


def kind(option):
    if option.is_flag:
        return "flag"
    return type(option.type).__name__, getattr(option.type, "name", ""), option.multiple


def options():
    """Command, spelling and option, of all options."""
    return [
        (name, spelling, option)
        for name, command in leaves().items()
        for option in command.params
        if isinstance(option, click.Option)
        for spelling in option.opts
    ]


def test_a_spelling_means_one_kind_of_value():
    """`--hosts` would be a file in one verb and a number in another."""
    kinds = {}
    for name, spelling, option in options():
        if (name, max(option.opts, key=len)) in OTHERS:
            continue
        wanted, by = kinds.setdefault(spelling, (kind(option), name))
        assert kind(option) == wanted, f"{spelling} of {name} and of {by}"


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("-n", "--world"),
        ("-o", "--output"),
        ("-m", None),
        ("-q", "--quiet"),
        ("-v", "--verbose"),
        ("-h", "--help"),
    ],
)
def test_short_options_stand_for_one_long_one(short, long):
    """Fingers would have to remember which verb they type."""
    found = {tuple(option.opts) for _, spelling, option in options() if spelling == short}
    assert found <= {(short, long) if long else (short,)}
    if long:
        assert not {
            option for _, spelling, option in options() if spelling == long and short not in option.opts
        }


def test_no_other_short_options():
    """A verb would get a letter of its own that means something else elsewhere."""
    assert {each for _, each, _ in options() if not each.startswith("--")} <= {"-n", "-o", "-m", "-q", "-v"}


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("4KB", 4000),
        ("1.5KiB", 1536),
        ("25m", 25_000_000),
        ("7", 7),
        ("1e6", 1_000_000),
        (" 2 GiB ", 2 << 30),
    ],
)
def test_sizes(text, size_bytes):
    """Another size would be measured than was asked for."""
    assert values.size(text) == size_bytes


@pytest.mark.parametrize(
    ("text", "bit_per_s"),
    [("100Mbit", 1e8), ("10gbit/s", 1e10), ("1.5G", 1.5e9), ("100e6", 1e8), ("8", 8.0), ("3Kbit", 3e3)],
)
def test_rates(text, bit_per_s):
    """Another network would be simulated than was asked for."""
    assert values.rate(text) == bit_per_s


def test_members():
    """Another number of ranks would be started, or be enough to go on."""
    assert values.members("2:4") == (2, 4)


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        *((values.size, text) for text in ("", "0", "-1", "nan", "inf", "4KX", "1e99", "4KB/s", "1 2")),
        *((values.rate, text) for text in ("", "0", "-1", "nan", "inf", "1Mbyte", "1e99", "1MiB")),
        *((values.count, text) for text in ("", "0", "-1", "1.5", "x", "²", "9999999999")),
        *((values.members, text) for text in ("", "2", "4:2", "0:2", ":2", "2:", "1:2:3", "a:b")),
    ],
)
def test_what_is_no_value_is_refused(parse, text):
    """Nonsense would become a number, or a traceback."""
    with pytest.raises(ValueError):  # noqa: PT011  # the option's type makes the message
        parse(text)


@pytest.mark.parametrize("verb", ["settings", "what-if", "program", "verifi"])
def test_a_verb_that_is_not_there_is_wrong_usage(verb):
    """The exit code would say that all went well."""
    done = CliRunner().invoke(hocket, [verb])
    assert done.exit_code == 2
    assert f"there is no verb `{verb}`\nhint: " in done.output


def hocket_says(*arguments, **options):
    """(exit code, standard error) of a process of its own."""
    source = "from hocket.cli.main import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", source, *arguments], stdin=subprocess.DEVNULL, timeout=60, check=False, text=True,
        **{"capture_output": True, **options},
    )  # fmt: skip
    return ran.returncode, ran.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["verfy", "two_level"], 2, "error: there is no verb `verfy`\nhint: verify"),
        (["plan", "--bogus"], 2, "hint: hocket plan --help"),
        (["simulate", "sweep"], 2, "error: Missing option '--cluster'"),
        (["plan", "--cluster", "none.toml"], 1, "error: cluster file none.toml cannot be read"),
        (["verify", "none"], 2, "error: there is no policy `none`"),
        (["run", "--plan", "pyproject.toml", "true"], 1, "error: plan file pyproject.toml is damaged"),
        (["run", "--elastic", "4", "x.py"], 2, "`4` is not MIN:MAX, two numbers of ranks such as 2:4"),
        (["run", "--elastic", "2:4", "-n", "5", "true"], 2, "starts with a number of ranks that it may have"),
        (["run", "--elastic", "2:4,rejoins=9", "x.py"], 2, "`rejoins=9` is not one of respawn=…, rejoin=…"),
        (["run", "--elastic", "2:4,alone=9", "x.py"], 2, "hint: give journal=FILE as well"),
        (["run", "--elastic", "2:4,on-refusal=stop", "x.py"], 2, "on-refusal is one of means, end"),
        (["run", "--elastic", "2:4,respawn=-1", "x.py"], 2, "respawn is a whole number from 0 to 10000"),
        (["run", "--elastic", "2:4", "--helpers", "1", "true"], 2, "an elastic job cannot have helpers"),
    ],
)
def test_errors_have_one_form(arguments, code, said):
    """A user would see a traceback, or one of two kinds of messages."""
    found, text = hocket_says(*arguments)
    assert found == code, text
    assert said in text
    assert text.startswith("error: ")
    assert "Traceback" not in text


def test_variables_are_looked_at_before_ranks_start():
    """Every rank would end with the same traceback, and a variable that is misspelt would change nothing."""
    code, text = hocket_says("run", "-n", "2", "true", env=os.environ | {"HOCKET_PROMISE": "fast"})
    assert code == 2, text
    assert "error: promise `fast`: known are exact" in text


@pytest.mark.parametrize(
    "arguments",
    [("run", "true"), ("plan", "--help"), ("bench", "all_reduce"), ("leave", "1"), ("trace", "analyse", "x")],
)
def test_a_variable_that_nobody_knows_is_refused_by_every_verb(arguments):
    """A time-out or a plan that was set by a misspelt name would change nothing, without a word."""
    code, text = hocket_says(*arguments, env=os.environ | {"HOCKET_TIMEOUT": "5", "HOCKET_ZZZ": "1"})
    assert code == 2, text
    assert "nobody reads HOCKET_TIMEOUT (did you mean HOCKET_TIMEOUT_S?), HOCKET_ZZZ\nhint: " in text


@pytest.mark.parametrize("given", ["nan", "inf", "-1", "1e300", "0", "soon"])
def test_a_time_that_cannot_be_waited_for_is_refused(given):
    """A rank would wait for ever, or end in an overflow when the others wait for it."""
    for arguments in (["run", "--timeout", given, "true"], ["leave", "0", "--timeout", given]):
        code, text = hocket_says(*arguments)
        assert code == 2, text
        assert f"`{given}` is not a number of seconds from 0.001 to 1e9" in text


def test_a_reader_that_goes_away_is_no_error():
    """`hocket verify … | head` would end in a traceback."""
    reading, writing = os.pipe()
    os.close(reading)
    code, text = hocket_says(
        "verify",
        "two_level",
        "--after",
        "chunk",
        capture_output=False,
        stdout=writing,
        stderr=subprocess.PIPE,
    )
    os.close(writing)
    assert (code, text) == (1, "")
