"""What a policy declares is looked at before anything is proven of it: what nobody would look at is refused."""

from pathlib import Path

import pytest

from hocket.errors import PolicyError, UsageError
from hocket.policies import READY_MADE, load
from hocket.policy import declared
from tests.hostile.test_bad_input import said

GOOD = """
import hocket
class Mine(hocket.Policy):
    parameters = {"share": 0.5, "name": "x", "on": True, "count": 3}
    def on_buffer_ready(self, cx, buffer):
        cx.all_reduce(buffer, op="mean")
    def my_own(self):
        pass
    size = 3
"""


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("on_buffer_ready", "on_buffer_redy", r"nobody looks at `on_buffer_redy`\nhint: on_buffer_ready, or another name"),
        ("on_buffer_ready", "on_bufferready", "nobody looks at `on_bufferready`\nhint: on_buffer_ready"),
        ("on_buffer_ready", "onBufferReady", "nobody looks at `onBufferReady`\nhint: on_buffer_ready"),
        ("on_buffer_ready", "buffer_ready", "nobody looks at `buffer_ready`"),
        ("my_own(self)", "on_worker_lost(self, cx, worker)", "nobody looks at `on_worker_lost`"),
        ("my_own(self)", "on_timers(self, cx, stats)", "nobody looks at `on_timers`\nhint: on_timer"),
        ("size = 3", "contracts = 'none'", "nobody looks at `contracts`\nhint: contract"),
        ("parameters", "parameter", "nobody looks at `parameter`\nhint: parameters"),
        ("0.5", "[1, 2]", r"the agreed value `share` is \[1, 2\]\nhint: a value is an int"),
        ("0.5", "None", "the agreed value `share` is None"),
        ("0.5", "float('nan')", "the agreed value `share` is nan"),
        ("0.5", "10 ** 30", "the agreed value `share` is 1000000"),
        ("0.5", "{}", "the agreed value `share` is {}"),
        ('"share"', "3", "`parameters` has 3, which is no name"),
        ("{", "[{", "`parameters` is"),
        ("size = 3", "contract = 'sum'", "`contract` is 'sum'\nhint: one of 'mean'"),
        ("size = 3", "timer_interval_s = float('inf')", "`timer_interval_s` is inf"),
        ("my_own(self)", "on_timer(self)", r"`on_timer` takes other arguments than it gets\nhint: on_timer\(self, cx, stats\)"),
        ("my_own(self)", "on_worker_added(self, cx, worker, host)", "`on_worker_added` takes other"),
    ],
)  # fmt: skip
def test_what_nobody_would_look_at_is_refused(before, after, message, tmp_path):
    """A misspelt handler would be proven, and never called: gradients would travel by the default one."""
    path = tmp_path / "policy.py"
    text = GOOD.replace(before, after, 1)
    path.write_text(text.replace('"count": 3}', '"count": 3}]') if after == "[{" else text)
    with pytest.raises(PolicyError, match=message):
        load.load(str(path))


def test_verify_says_where_the_handler_is(tmp_path):
    """`hocket verify` would say of it that it is proven."""
    path = tmp_path / "policy.py"
    path.write_text(GOOD.replace("on_buffer_ready", "on_buffer_redy"))
    code, text = said(["hocket", "verify", str(path), "-n", "2"])
    assert code == 1
    assert text.startswith(f"error: {path}:5: policy Mine: nobody looks at `on_buffer_redy`"), text


def test_what_is_right_is_not_refused(tmp_path):
    """Users could not have members of their own."""
    path = tmp_path / "policy.py"
    path.write_text(GOOD)
    assert type(load.load(str(path))).__name__ == "Mine"
    for made in READY_MADE.values():
        declared.check(made())


def test_values_are_those_that_ranks_can_compare():
    """Ranks would never agree on a number that is not equal to itself."""
    for value in (1, -(1 << 63), 0.5, "x", True):
        assert declared.is_value(value)
    for value in ([1], None, (1,), float("nan"), float("inf"), 1 << 63, b"x", {}):
        assert not declared.is_value(value)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("two_levl", "there is no policy `two_levl`\nhint: "),
        ("none.py", "there is no policy file none.py"),
        ("policy.py:Other", "policy.py has no class Other\nhint: it has Mine"),
        ("wrong.py", "wrong.py cannot be loaded: it is no Python"),
    ],
)
def test_a_policy_that_is_not_there_is_told_before_ranks_start(policy, message, tmp_path, monkeypatch):
    """Every rank would load PyTorch, build its model and meet the others before each of them prints the same error."""
    monkeypatch.chdir(tmp_path)
    Path("policy.py").write_text(GOOD)
    Path("wrong.py").write_text("class Mine(:\n")
    Path("train.py").write_text("from pathlib import Path; Path('started').touch()")
    with pytest.raises((UsageError, PolicyError), match=message):
        load.look(policy)
    for argv in (["--policy", policy], []):
        monkeypatch.setenv("HOCKET_POLICY", "" if argv else policy)
        code, text = said(["hocket", "run", *argv, "train.py"])
        assert code in (1, 2), text
        assert "error: " in text
    assert not Path("started").exists()


def test_a_trace_that_cannot_be_made_is_told_before_ranks_start(tmp_path, monkeypatch):
    """Ranks would end with a traceback each, once they have built their models and met."""
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("train.py").write_text("from pathlib import Path; Path('started').touch()")
    for trace in ("file", "file/run1"):
        code, text = said(["hocket", "run", "--trace", trace, "train.py"])
        assert (code, "error: " in text) == (2, True), text
        assert "file" in text
    assert not Path("started").exists()


def test_tune_reads_what_it_judges_before_it_measures(tmp_path, monkeypatch):
    """The file that is missing would be found after half a minute of measuring."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("hocket.cli.tune.tune", lambda *_args, **_options: pytest.fail("it measures"))
    code, text = said(["hocket", "tune", "-n", "2", "--check", "--tuning", "none.json"])
    assert (code, text.splitlines()[0]) == (
        1, "error: tuning file none.json cannot be read: No such file or directory",
    )  # fmt: skip
