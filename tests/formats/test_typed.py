"""Types that several threads decode for the first time at once."""

import sys

from tests.support.commands import completed

FIRST_AT_ONCE = """
import sys, threading
import msgspec
from hocket import typed

sys.setswitchinterval(1e-6)
tree = {"one": {"a": 1, "b": [2]}, "many": {"x": {"a": 1, "b": [2]}}, "three": 3}
for _ in range(100):
    class Inner(msgspec.Struct):
        a: int
        b: list[int]

    class Outer(msgspec.Struct):
        one: Inner
        many: dict[str, Inner]
        three: "int | None"

    found, together = [], threading.Barrier(4)

    def decode():
        together.wait()
        found.append(typed.of_builtins(tree, Outer))

    threads = [threading.Thread(target=decode) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and all(each.many["x"].b == [2] for each in found), found
"""


def test_threads_may_decode_a_type_at_once_for_the_first_time():
    """Two models' autopilots met in two threads, and the rank died of SIGSEGV."""
    ended = completed([sys.executable, "-c", FIRST_AT_ONCE])
    assert ended.returncode == 0, ended
