"""Small whole files of others' formats, by name, each with what reads it: the subjects of `test_damaged_files.py`."""

import gzip
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hocket.artefacts.trace import FIELDS, NO_PEER, Kind, LoadedProgram, Recording, RunInfo
from hocket.tools.formats import (
    catalogue,
    chakra,
    chakra_program,
    dlc,
    dlc_all_reduce,
    kineto,
    kineto_buckets,
    msccl,
    parquet,
)
from hocket.tools.formats.foreign_program import program
from tests.support.dlc_files import VECTORS


@dataclass(frozen=True)
class Subject:
    """`whole`: a file's bytes. `read(path)`: reads a file called `name`, beside which the files `beside` lie."""

    name: str
    whole: bytes
    read: Callable[[Path], object]
    beside: Mapping[str, bytes]


def subjects(folder: Path) -> dict[str, Subject]:
    """All subjects; `folder` is for files in the making."""
    ring = chakra.read(VECTORS / "chakra-custom-ring-8/custom_allreduce.0.et")
    nodes = chakra.encode(chakra.EtFile(ring.nodes, chakra.VERSION, {"collective": "allreduce"}))
    short = (VECTORS / "chakra-all-reduce-4/all_reduce.1.et").read_bytes()
    eight = {each.name: each.read_bytes() for each in (VECTORS / "chakra-custom-ring-8").iterdir()}
    pair = {f"pair.{rank}.et": pair_file(rank) for rank in range(2)}
    return {
        "msccl": Subject("x.xml", small_gather(), read_msccl, {}),
        "chakra": Subject("x.et", nodes, read_chakra, {}),
        "chakra, short": Subject("x.et", short, read_chakra, {}),
        "chakra program": _collective("custom_allreduce.0.et", eight),
        "chakra program, short": _collective("pair.0.et", pair),
        "kineto": Subject("x.json", small_profile(), kineto.read, {}),
        "kineto buckets": Subject("x.json", small_step(), kineto_buckets.profiled, {}),
        "dlc of an all-reduce": Subject("worker0.txt", small_all_reduce(), read_all_reduce, {}),
        "parquet": Subject("x.parquet", small_table(folder), read_parquet, {}),
    }


def _collective(first: str, files: Mapping[str, bytes]) -> Subject:
    """All ranks' files of a collective, of which the first rank's is damaged."""
    beside = {name: content for name, content in files.items() if name != first}
    return Subject(first, files[first], chakra_program.read, beside)


def read_msccl(path: Path) -> object:
    return program(msccl.parse(path.read_bytes(), path.name), 1).findings()


def read_chakra(path: Path) -> object:
    return chakra.decode(path.read_bytes())


def read_parquet(path: Path) -> object:
    """Records of all ranks, or every batch of messages."""
    reader = parquet.Reader(path)
    return reader.recording() if reader.dlc_header is None else list(reader.batches())


def read_all_reduce(path: Path) -> object:
    """The directory of all ranks' files, of which there is one."""
    return catalogue.open_trace(path.parent).content


def small_all_reduce() -> bytes:
    """A rank's file of a launch with a message each way and a reduction."""
    records = np.zeros(4, list(FIELDS))
    records["kind"] = (Kind.INSTANCE, Kind.SEND, Kind.RECV, Kind.REDUCE)
    records["peer"] = (NO_PEER, 1, 1, NO_PEER)
    records["op"], records["bytes"] = (0, 0, 1, 2), 4096
    records["start_ns"], records["end_ns"] = (0, 1000, 2000, 5000), (9000, 4000, 5000, 8000)
    run = RunInfo(world=2, hosts=("a", "b"), programs=(LoadedProgram(program=0, label="bucket.0"),))
    ((_, header, batches), _) = dlc_all_reduce.to_dlc(Recording(run, (records, records[:0])))
    return header.text + b"".join(map(dlc.lines, batches))


def small_gather() -> bytes:
    """A program of two GPUs that may run: reading a large one takes too long to do it often."""
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


def small_profile() -> bytes:
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


def small_step() -> bytes:
    """One bucket: an operator in forward, its backward function, the collective, an optimizer, and a kernel of each."""

    def event(cat: str, name: str, ts: int, dur: int, tid: int, **args: object) -> dict[str, object]:
        return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "tid": tid, "args": args}

    backward = "autograd::engine::evaluate_function: "
    reduced = {"Collective name": "allreduce", "In msg nelems": 100, "dtype": "Float", "stream": 9}
    events = [
        event("user_annotation", "ProfilerStep#3", 0, 90, 1),
        event("cpu_op", "aten::linear", 5, 9, 1, **{"External id": 1, "Sequence number": 8}),
        event("kernel", "gemm", 10, 7, 7, **{"External id": 1, "stream": 7}),
        event("cpu_op", backward + "AddmmBackward0", 20, 9, 2, **{"External id": 2, "Sequence number": 8}),
        event("kernel", "gemm", 22, 15, 7, **{"External id": 2, "stream": 7}),
        event("cpu_op", backward + "torch::autograd::AccumulateGrad", 30, 9, 2, **{"External id": 3}),
        event("cpu_op", "record_param_comms", 32, 3, 2, **{"External id": 4}),
        event("kernel", "ncclKernel", 38, 20, 9, **{"External id": 4}, **reduced),
        event("user_annotation", "Optimizer.step#SGD.step", 60, 9, 1),
        event("cpu_op", "aten::add_", 61, 5, 1, **{"External id": 5}),
        event("kernel", "add", 66, 4, 7, **{"External id": 5, "stream": 7}),
    ]
    return json.dumps({"distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": events}).encode()


def small_table(folder: Path) -> bytes:
    """A trace of two ranks with a few records."""
    records = np.zeros(3, list(FIELDS))
    records["kind"], records["end_ns"] = (5, 6, 16), (1, 2, 3)
    info = RunInfo(
        world=2, hosts=("a", "b"), programs=(LoadedProgram(program=0, label="bucket 0", bucket=0, bytes=64),)
    )
    path = folder / "whole.parquet"
    parquet.write_native(path, Recording(info, (records, records[:1])))
    return path.read_bytes()


def pair_file(rank: int) -> bytes:
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
