"""Writes large DLC traces: a worker of two with a server, 157 tensors as ResNet-50 has them, four records a tensor and iteration.

`python -m benches.dlc_generator 10000000 big.txt`; then `/usr/bin/time -v hocket trace analyse big.txt`.
"""

import sys
from pathlib import Path

TENSORS = 157
ITERATION_US = 900_000
HEADER = """==
num_workers:= 2
num_servers:= 1
worker_hostname:= generated
Worker_ID:= 0,1,
Server_ID:= 2,
==
id\tsrc\tdst\tlength\tnum_pp\toperation\top_id\tdep_type\td_time\ttime_sec\ttime_usec\tid_dep
"""


def iteration(number: int, first_id: int) -> list[str]:
    """The lines of one iteration: every tensor is pushed, acknowledged, asked for and pulled."""
    begin_us = 1_500_000_000_000_000 + number * ITERATION_US
    num = 4 + 4 * number
    waits = f"({num - 1}-s0.)" if number else "-1"
    lines = []
    for key in range(TENSORS):
        size = 47 + (key * 7919 % 9_440_000)
        at = begin_us + 500_000 + 1_000 * key
        dispatch = 2 * (number * TENSORS + key) + 1
        for step, (operation, what, source, to, length, after, dep_type, waited) in enumerate(
            (
                ("Push_Send", num, 0, 2, size, 500_000 + 1_000 * key, 4 if number else 0, waits),
                ("Push_Recv", num + 1, 2, 0, 19, 300, 1, f"{key}-{num}-s0"),
                ("Pull_Send", num + 2, 0, 2, 28, 20, 2, f"{key}-{num + 1}-s0"),
                ("Pull_Recv", num + 3, 2, 0, size, 400, 3, f"{key}-{num + 2}-s0"),
            )
        ):
            at += after if step else 0
            second, micros = divmod(at, 1_000_000)
            lines.append(
                f"{first_id + 4 * key + step}\t{source}\t{to}\t{length}\t{dispatch + step // 2}\tOP:= {operation}_Worker\t"
                f"{key}-{what}-s0\t{dep_type}\t{after}\t{second}\t{micros}\t{waited}\n"
            )
    return lines


def write(path: str, records: int) -> int:
    """At least so many records, in whole iterations; how many."""
    written = number = 0
    with Path(path).open("w") as file:
        file.write(HEADER)
        while written < records:
            lines = iteration(number, written)
            file.writelines(lines)
            written += len(lines)
            number += 1
    return written


if __name__ == "__main__":
    write(sys.argv[2], int(sys.argv[1]))
