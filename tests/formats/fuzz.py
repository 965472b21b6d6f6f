"""Damages the files in `vectors` at random and reads them, for a while: `python tests/formats/fuzz.py COUNT [SEED]`.

Each input must be read or be refused with one of Hocket's errors. Ten million lines of DLC are
`cargo test --release -p hocket-dlc million -- --ignored`; `test_fuzz.py` runs a few of these.
"""

import random
import sys

from dlc_files import FRAGMENT, VECTORS

from hocket.errors import Error
from hocket.formats import chakra, msccl
from hocket.formats.foreign_program import program


def read_msccl(data):
    """A program, and the verifier's word on it."""
    return program(msccl.parse(data, "x.xml"), 1).errors()


def small_gather():
    """A program of two GPUs that may run: reading the large one takes too long to do it often."""
    steps = (
        '<step s="0" type="s" srcbuf="o" srcoff="{0}" dstbuf="o" dstoff="{0}" cnt="1" depid="-1" deps="-1"/>'
        '<step s="1" type="r" srcbuf="i" srcoff="0" dstbuf="o" dstoff="{1}" cnt="1" depid="-1" deps="-1"/>'
    )
    gpus = "".join(
        f'<gpu id="{rank}" i_chunks="1" o_chunks="2" s_chunks="0"><tb id="0" send="{1 - rank}" recv="{1 - rank}" chan="0">'
        f"{steps.format(rank, 1 - rank)}</tb></gpu>"
        for rank in range(2)
    )
    return f'<algo name="x" ngpus="2" coll="allgather" inplace="1">{gpus}</algo>'.encode()


RING = chakra.read(VECTORS / "chakra-custom-ring-8/custom_allreduce.0.et")

SUBJECTS = {
    "msccl": (small_gather(), read_msccl),
    "chakra": (
        chakra.encode(chakra.EtFile(RING.nodes, chakra.VERSION, {"collective": "allreduce"})),
        chakra.decode,
    ),
    "chakra, short": ((VECTORS / "chakra-all-reduce-4/all_reduce.1.et").read_bytes(), chakra.decode),
}
"""By name: a whole file, and what reads it."""


def fuzz(count, seed):
    """How many inputs of each subject were read, and how many refused."""
    chance = random.Random(seed)  # noqa: S311
    outcome = {name: [0, 0] for name in SUBJECTS}
    pieces = FRAGMENT.read_bytes()
    for turn in range(count):
        name = list(SUBJECTS)[turn % len(SUBJECTS)]
        whole, read = SUBJECTS[name]
        data = bytearray(whole)
        for _ in range(chance.randint(0, 4)):
            at, length = chance.randrange(len(data) + 1), chance.randint(0, 3)
            piece = chance.choice(
                (chance.randbytes(length), pieces[at % 5000 : at % 5000 + length], data[at : at + 9] * 2)
            )
            data[at : at + length] = piece
        try:
            read(bytes(data))
        except Error:
            outcome[name][1] += 1
        else:
            outcome[name][0] += 1
    return outcome


if __name__ == "__main__":
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(2**32)  # noqa: S311
    sys.stdout.write(f"seed {seed}\n{fuzz(int(sys.argv[1]), seed)}\n")
