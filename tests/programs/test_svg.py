"""The picture of a program shows what is in it."""

import re
from xml.etree import ElementTree

import pytest

from hocket.artefacts.plan import AllReduce
from hocket.errors import UsageError
from hocket.planning.compile import all_reduce_program
from hocket.tools.formats.svg import svg


def program(world, algorithm, chunk_bytes=1 << 20):
    return all_reduce_program(
        world=world,
        elements=240,
        dtype="f32",
        op="sum",
        scale=0.5,
        route=AllReduce(algorithm=algorithm),
        chunk_bytes=chunk_bytes,
    )


@pytest.mark.parametrize(("world", "algorithm"), [(4, "ring"), (2, "direct")])
def test_every_op_and_message_is_there(world, algorithm):
    """A reader would look for the fault in the wrong place."""
    shown = program(world, algorithm)
    text = svg(shown)
    ElementTree.fromstring(text)  # noqa: S314  # our own
    ops = [op for rank in range(world) for op in shown.ops(rank)]
    assert text.count('<g class="op">') == len(ops)
    assert text.count('class="message"') == sum(op["op"] == "send" for op in ops)


def test_boxes_do_not_overlap():
    """Text would be unreadable."""
    boxes = [
        tuple(int(each) for each in found)
        for found in re.findall(
            r'<rect class="lane" x="(\d+)" y="(\d+)" width="(\d+)" height="38"', svg(program(4, "ring"))
        )
    ]
    assert len(boxes) > 20
    for at, (x, y, width) in enumerate(boxes):
        for other_x, other_y, other_width in boxes[:at]:
            assert y != other_y or x + width <= other_x or other_x + other_width <= x


def test_one_rank_alone_and_too_many_ops():
    """A picture of everything would be of nothing."""
    assert "rank 2" in svg(program(4, "ring"), ranks=[2])
    with pytest.raises(UsageError, match="more than the 2000"):
        svg(program(8, "direct", chunk_bytes=4))
