"""Damages files of others' formats at random and reads them: `python tests/formats/fuzz.py COUNT [SEED] [NAME...]`, COUNT each.

Each input must be read or be refused with one of Hocket's errors, within HANG_S. There is a process for each processor. Ten million
lines of DLC are `cargo test --release -p hocket-dlc million -- --ignored`; `test_fuzz.py` runs a few of these.
"""

import atexit
import gzip
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from hocket.artefacts.trace import FIELDS, LoadedProgram, Recording, RunInfo
from hocket.errors import Error
from hocket.formats import chakra, chakra_program, kineto, msccl, parquet
from hocket.formats.foreign_program import program
from tests.support.dlc_files import FRAGMENT, VECTORS

HANG_S = 10
"""Of the processor's time."""

BATCH = 2000
"""Inputs between two words on how far it is."""

FOLDER = Path(
    tempfile.mkdtemp(prefix="hocket-fuzz-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
)

atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)


def read_msccl(data):
    """A program, and the verifier's word on it."""
    return program(msccl.parse(data, "x.xml"), 1).findings()


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


def file_of(data, name):
    """A file with those bytes, of this process's own."""
    path = FOLDER / f"{os.getpid()}.{name}"
    path.write_bytes(data)
    return path


def read_kineto(data):
    """Records of one rank's file."""
    return kineto.read(file_of(data, "json"))


def small_profile():
    """The first collectives, steps and kernels of a real trace."""
    tree = json.loads(gzip.decompress((VECTORS / "kineto-resnet50-ddp-2xa100.json.gz").read_bytes()))
    events = [each for each in tree["traceEvents"] if each.get("cat") == "kernel"]
    shared = [each for each in events if each["name"].startswith("nccl")][:2]
    steps = [each for each in tree["traceEvents"] if "ProfilerStep" in str(each.get("name"))][:1]
    head = {
        name: tree[name]
        for name in ("schemaVersion", "distributedInfo", "baseTimeNanoseconds")
        if name in tree
    }
    return json.dumps({**head, "traceEvents": [*steps, *shared, events[0]]}).encode()


def read_parquet(data):
    """Records of all ranks, or every batch of messages."""
    reader = parquet.Reader(file_of(data, "parquet"))
    return reader.recording() if reader.dlc_header is None else list(reader.batches())


def small_table():
    """A trace of two ranks with a few records."""
    records = np.zeros(3, list(FIELDS))
    records["kind"], records["end_ns"] = (5, 6, 16), (1, 2, 3)
    info = RunInfo(
        world=2, hosts=("a", "b"), programs=(LoadedProgram(program=0, label="bucket 0", bucket=0, bytes=64),)
    )
    path = FOLDER / "whole.parquet"
    parquet.write_native(path, Recording(info, (records, records[:1])))
    return path.read_bytes()


def pair_file(rank):
    """One of two ranks' files of `small_gather` as a custom collective of Chakra's."""
    peer = {"comm_size": 64, "comm_tag": 0}
    nodes = (
        chakra.Node(
            id=0,
            name="COMM_SEND_NODE_tb0_step0",
            type=chakra.NodeType.SEND,
            attributes={**peer, "comm_dst": 1 - rank},
        ),
        chakra.Node(
            id=1,
            name="COMM_RECV_NODE_tb0_step1",
            type=chakra.NodeType.RECEIVE,
            data_deps=(0,),
            attributes={**peer, "comm_src": 1 - rank},
        ),
    )
    return chakra.encode(chakra.EtFile(nodes, chakra.VERSION, {"input_file": small_gather().decode()}))


PAIR = {f"pair.{rank}.et": pair_file(rank) for rank in range(2)}
EIGHT = {each.name: each.read_bytes() for each in (VECTORS / "chakra-custom-ring-8").iterdir()}
"""All ranks' files by name."""


def reads_collective(files):
    """What reads the programs of all ranks of a collective, the first rank's file damaged."""

    def read(data):
        folder = FOLDER / f"{os.getpid()}.{len(files)}"
        first = folder / min(files)
        if not folder.exists():
            folder.mkdir()
            for name, content in files.items():
                (folder / name).write_bytes(content)
        first.write_bytes(data)
        return chakra_program.read(first)

    return read


RING = chakra.read(VECTORS / "chakra-custom-ring-8/custom_allreduce.0.et")

SUBJECTS = {
    "msccl": (small_gather(), read_msccl),
    "chakra": (
        chakra.encode(chakra.EtFile(RING.nodes, chakra.VERSION, {"collective": "allreduce"})),
        chakra.decode,
    ),
    "chakra, short": ((VECTORS / "chakra-all-reduce-4/all_reduce.1.et").read_bytes(), chakra.decode),
    "chakra program": (EIGHT["custom_allreduce.0.et"], reads_collective(EIGHT)),
    "chakra program, short": (PAIR["pair.0.et"], reads_collective(PAIR)),
    "kineto": (small_profile(), read_kineto),
    "parquet": (small_table(), read_parquet),
}
"""By name: a whole file, and what reads it."""


OTHERS = FRAGMENT.read_bytes()


def damaged(whole, chance):
    """Up to four places changed, removed, doubled or filled with another file's bytes, or the file cut off."""
    data = bytearray(whole)
    for _ in range(chance.randint(0, 4)):
        at, length = chance.randrange(len(data) + 1), chance.randint(0, 3)
        piece = chance.choice(
            (chance.randbytes(length), OTHERS[at % 5000 : at % 5000 + length], data[at : at + 9] * 2)
        )
        data[at : at + length] = piece
    if chance.random() < 0.1:
        del data[chance.randrange(len(data) + 1) :]
    return bytes(data)


def fuzz(count, seed, names=SUBJECTS):
    """How many inputs of each subject were read, and how many refused."""
    chance = random.Random(seed)  # noqa: S311
    outcome = {name: [0, 0] for name in names}
    signal.signal(signal.SIGPROF, _hangs)
    for turn in range(count):
        for name in names:
            whole, read = SUBJECTS[name]
            data = damaged(whole, chance)
            signal.setitimer(signal.ITIMER_PROF, HANG_S)
            try:
                read(data)
            except Error:
                outcome[name][1] += 1
            except BaseException:
                kept = (
                    Path(tempfile.gettempdir())
                    / f"hocket-fuzz-{name.replace(', ', '-').replace(' ', '-')}-{seed}-{turn}"
                )
                kept.write_bytes(data)
                sys.stderr.write(f"{name}: kept the input as {kept}\n")
                raise
            else:
                outcome[name][0] += 1
    signal.setitimer(signal.ITIMER_PROF, 0)
    return outcome


def _hangs(_number, _frame):
    raise TimeoutError(f"not read after {HANG_S} s")


def _batch(given):
    return fuzz(*given)


def main():
    """All subjects, or those named."""
    count = int(sys.argv[1])
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(2**31)  # noqa: S311
    names = sys.argv[3:] or list(SUBJECTS)
    total = {name: [0, 0] for name in names}
    began_s = time.monotonic()
    batches = ((min(BATCH, count - at), seed + at // BATCH, names) for at in range(0, count, BATCH))
    with multiprocessing.Pool() as pool:
        for done, outcome in enumerate(pool.imap_unordered(_batch, batches), 1):
            for name, (read, refused) in outcome.items():
                total[name] = [total[name][0] + read, total[name][1] + refused]
            if done % 20 == 0 or done * BATCH >= count:
                sys.stdout.write(
                    f"seed {seed}, {time.monotonic() - began_s:.0f} s, read and refused: {total}\n"
                )
                sys.stdout.flush()


if __name__ == "__main__":
    main()
