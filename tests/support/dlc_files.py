"""DLC files as text, written from the format's description and not with Hocket's own code; and the paper's fragment."""

from pathlib import Path

from hypothesis import strategies as st

VECTORS = Path(__file__).parents[1] / "formats/vectors"
FRAGMENT = VECTORS / "lenet5-worker0.txt"

COLUMNS = "id src dst length num_pp operation op_id dep_type d_time time_sec time_usec id_dep".replace(
    " ", "\t"
)


def header(workers=2, servers=1):
    return (
        f"==\nnum_workers:= {workers}\nnum_servers:= {servers}\nworker_hostname:= somewhere\n==\n{COLUMNS}\n"
    )


def line(*fields):
    return "\t".join(map(str, fields)) + "\n"


@st.composite
def records(draw, workers=3, servers=2):
    """Well-formed lines of any node, ids rising."""
    number = draw(st.integers(0, 50))
    lines = []
    for _ in range(draw(st.integers(0, 12))):
        number += draw(st.integers(0, 3))
        prefix = draw(st.sampled_from(["OP:= ", ""]))
        worker, server = draw(st.integers(0, workers - 1)), draw(st.integers(0, servers - 1))
        size = draw(st.integers(0, 2**40))
        start = (number, worker, workers + server, size)
        if draw(st.integers(0, 5)) == 0:
            spelling = draw(st.sampled_from(["SendCom_TO_Servers", "SendCom_To_Servers"]))
            lines.append(line(*start, 0, prefix + spelling))
            continue
        what, way = draw(st.sampled_from(["Push", "Pull"])), draw(st.sampled_from(["Send", "Recv"]))
        serves = draw(st.booleans())
        # A worker's send and a server's receive go from the worker to the server.
        ends = (worker, workers + server) if (way == "Send") != serves else (workers + server, worker)
        peer = f"w{worker}" if serves else f"s{server}"
        key, num = draw(st.integers(0, 2**31 - 1)), draw(st.integers(-2, 2**31 - 1))
        waits = draw(
            st.sampled_from(["-1", f"{key}-{num}-{peer}", f"({num}-{peer}.)", f"({num}-w0.{key}-{num}-w1.)"])
        )
        lines.append(
            line(
                number, *ends, size, draw(st.sampled_from([-15, 0, 1, 23, 2**40])),
                f"{prefix}{what}_{way}_{'Server' if serves else 'Worker'}", f"{key}-{num}-{peer}", draw(st.integers(0, 4)),
                draw(st.integers(-(10**9), 10**12)), draw(st.integers(0, 2**33)), draw(st.integers(0, 999_999)), waits,
            )
        )  # fmt: skip
    return "".join(lines)
