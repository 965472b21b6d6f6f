"""What the verifier and the parser find reaches Python; which programs they refuse, and why, the `.hkp` files here say."""

import pytest

from hocket import ProgramError  # part of what is tested: it is exported
from hocket._native import Program

HALF = """program "pair" world 2 ; who would receive?
rank 0 {
  %0 = bound f32 8 "x"
  0: send %0[0:8] as f32 to 1 tag 0
}
rank 1 {
}
"""


def test_findings_and_their_place_reach_python():
    """A policy that loses a message would run, or be refused with no line to look at."""
    program = Program.parse(HALF)
    (finding,) = program.findings()
    assert (finding.rank, finding.op, finding.what) == (0, 0, "rank 1 never receives tag 0 from it")
    with pytest.raises(ProgramError, match="rank 1 never receives tag 0 from it"):
        program.verify()


def test_text_that_is_no_program_is_refused_with_its_place():
    """A typing mistake in a program file would be a riddle."""
    with pytest.raises(ProgramError, match="line 4 column 6: expected an op"):
        Program.parse(HALF.replace("send", "jump"))
