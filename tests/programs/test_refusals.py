"""Programs that would lose, double, race or deadlock, each with the sentence that refuses it."""

import pytest

from hocket import ProgramError  # part of what is tested: it is exported
from hocket._native import Program

GOOD = """program "pair" world 2
ensures all_reduce sum scale 1.0 %0 over 0 1
rank 0 {
  %0 = bound f32 8 "x"
  %1 = scratch f32 8 "t"
  0: send %0[0:8] as f32 to 1 tag 0
  1: recv %1[0:8] as f32 store from 1 tag 0
  2: reduce sum %1[0:8] into %0[0:8] after 0 1
}
rank 1 {
  %0 = bound f32 8 "x"
  %1 = scratch f32 8 "t"
  0: send %0[0:8] as f32 to 0 tag 0
  1: recv %1[0:8] as f32 store from 0 tag 0
  2: reduce sum %1[0:8] into %0[0:8] after 0 1
}
"""


def test_the_program_behind_the_refusals_is_accepted():
    """The refusals below would prove nothing."""
    assert Program.parse(GOOD).findings() == []


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("%0[0:8] as f32 to 1 tag 0", "%0[0:9] as f32 to 1 tag 0", "elements 0..9 of a buffer of 8"),
        ("%0[0:8] as f32 to 1 tag 0", "%7[0:8] as f32 to 1 tag 0", "there is no buffer %7"),
        ("as f32 to 1 tag 0", "as f32 to 5 tag 0", "exchanges nothing with rank 5"),
        ("as f32 to 1 tag 0", "as f32 to 0 tag 0", "exchanges nothing with rank 0"),
        ("as f32 to 1 tag 0", "as f32 to 1 tag 3", "never sends tag 0 to it"),
        ("as f32 to 1 tag 0", "as f16 to 1 tag 0", "takes 8 f32; rank 0 sends 8 f16"),
        ("send %0[0:8] as f32 to 1", "send %0[0:7] as f32 to 1", "takes 8 f32; rank 0 sends 7 f32"),
        ("as f32 to 1 tag 0", "as i32 to 1 tag 0", "f32 does not convert to i32"),
        ("into %0[0:8] after 0 1", "into %0[0:8] after 1", "races with op 0"),
        ("into %0[0:8] after 0 1", "into %0[0:8] after 0", "races with op 1"),
        ("into %0[0:8] after 0 1", "into %0[0:8] after 0 1 2", "comes after an op that stands behind it"),
        ("%1[0:8] into %0[0:8]", "%1[0:4] into %0[0:8]", "4 elements into 8"),
        ("%1[0:8] into %0[0:8]", "%1[0:4] into %0[0:4]", "lacks the contribution of rank 1"),
        ("reduce sum %1", "reduce max %1", "is not reduced by Sum"),
        ("reduce sum %1", "reduce xor %1", "`xor` is of integers, not of f32"),
        ("2: reduce sum %1[0:8] into %0[0:8] after 0 1\n", "", "lacks the contribution of rank 1"),
        (
            "after 0 1\n}",
            "after 0 1\n  3: reduce sum %1[0:8] into %0[0:8] after 2\n}",
            "has the contribution of rank 1 more than once",
        ),
        ("after 0 1\n}", "after 0 1\n  3: apply scale 0.5 %0[0:8] after 2\n}", "is scaled by 0.5, not by 1"),
        ("after 0 1\n}", "after 0 1\n  3: apply round f16 %0[0:8] after 2\n}", "replicas differ"),
        ("%1[0:8] as f32 store", "%1[0:8] as f32 reduce sum", "which nothing has written"),
        ("1: recv %1[0:8] as f32 store from 1 tag 0", "1: copy %0[0:8] to %1[0:8]", "never receives tag 0"),
    ],
)
def test_wrong_programs_are_refused_with_the_reason(before, after, said):
    """A policy that loses, doubles or races would run and train a wrong model."""
    assert before in GOOD
    findings = Program.parse(GOOD.replace(before, after, 1)).findings()
    assert any(said in finding.what for finding in findings), findings


def test_a_circle_of_waits_is_named():
    """Ranks would wait for each other for ever."""
    both_receive_first = GOOD.replace("0: send %0[0:8]", "0: recv %1[0:8] as f32 store from X tag 0 #")
    lines = []
    for line in both_receive_first.splitlines():
        if "#" in line:
            peer = line.partition("to ")[2][0]
            lines.append(f"  0: recv %1[0:8] as f32 store from {peer} tag 0")
            lines.append(f"  1: send %0[0:8] as f32 to {peer} tag 0 after 0")
        elif "1: recv" not in line:
            lines.append(line)
    findings = Program.parse("\n".join(lines)).findings()
    assert any("waits for itself: rank" in finding.what for finding in findings), findings


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1 column 1: expected `program`"),
        ('program "x" world 2', "expected rank 0 of 2"),
        ('program "x" world 1 rank 0 { 0: jump %0[0:1] }', "column 33: expected an op"),
        ('program "x" world 1 rank 0 { %0 = bound f33 1 "x" }', "expected an element type"),
        ('program "x world 1', "a closing quote"),
        ('program "x" world 1 rank 0 { 0: copy %0[5:1] to %0[0:1] }', "an end of at least 5"),
        ('program "x" world 99999999999999999999', "the number of ranks"),
    ],
)
def test_text_that_is_no_program_is_refused_with_its_place(text, said):
    """A typing mistake in a program file would be a riddle."""
    with pytest.raises(ProgramError, match=r"line \d+ column \d+") as caught:
        Program.parse(text)
    assert said in str(caught.value)
