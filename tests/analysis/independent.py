"""Times of workers, servers and keys from the files of a DLC trace, by the format's definitions: `python independent.py FILE...`.

Only the standard library is imported, nothing of Hocket. Output is JSON on standard output: each list of durations as its number,
least, mean, median, 99th percentile and longest, in microseconds; `phases` by worker, `keys` by server and key.
"""

import json
import math
import sys
from collections import defaultdict
from pathlib import Path

SHARES = {"median_us": 0.5, "p99_us": 0.99, "longest_us": 1.0}


def records(path):
    """Dictionaries of a file's messages of training, with the iteration of each."""
    rows = []
    names = None
    for line in Path(path).read_text(encoding="ascii").splitlines():
        fields = line.split("\t")
        if names is None:
            names = fields if fields[0] == "id" else None
            continue
        if len(fields) < len(names):
            continue  # a set-up record
        row = dict(zip(names, fields, strict=True))
        what, way, role = row["operation"].split()[-1].split("_")
        key, rest = row["op_id"].split("-", 1)
        number, _, peer = rest.rpartition("-")
        node = int(row["dst"] if way == "Recv" else row["src"])
        first = 4 if role == "Worker" and node == 0 else 2
        rows.append(
            {
                "kind": f"{what}_{way}_{role}",
                "node": node,
                "key": int(key),
                "peer": peer,
                "iteration": max(-1, (int(number) - first) // 4),
                "at": int(row["time_sec"]) * 1_000_000 + int(row["time_usec"]),
                "d_time": int(row["d_time"]),
                "several": row["id_dep"].startswith("("),
                "waits": row["dep_type"] != "0",
            }
        )
    return rows


def summary(values):
    """Statistics of those that are not negative; None without any."""
    known = sorted(value for value in values if value >= 0)
    if not known:
        return None
    found = {"count": len(known), "negative": len(values) - len(known), "least_us": known[0]}
    found["mean_us"] = sum(known) / len(known)
    for name, share in SHARES.items():
        # The smallest value that is at least so large a share of all.
        found[name] = known[max(0, math.ceil(share * len(known) - 1e-9) - 1)]
    return found


def phases(rows):
    """Phases of a worker's iterations that are whole and follow one another."""
    pushes, pulls = defaultdict(list), defaultdict(list)
    for row in rows:
        if row["kind"] == "Push_Send_Worker":
            pushes[row["iteration"]].append(row["at"])
        elif row["kind"] == "Pull_Recv_Worker":
            pulls[row["iteration"]].append(row["at"])
    parts = defaultdict(list)
    for iteration in sorted(pulls):
        if iteration < 0 or iteration - 1 not in pulls or iteration not in pushes:
            continue
        began, first, last = max(pulls[iteration - 1]), min(pushes[iteration]), max(pushes[iteration])
        ended = max(pulls[iteration])
        parts["computation"].append(last - began)
        parts["pure_computation"].append(first - began)
        parts["overlapped"].append(last - first)
        parts["communication"].append(ended - first)
        parts["waiting"].append(ended - min(pulls[iteration]))
    return {name: summary(values) for name, values in parts.items()}


def keys(rows):
    """Search, synchronisation and update of a server's keys."""
    search, alone, answered_all, arrived, answered = (defaultdict(list) for _ in range(5))
    for row in rows:
        if row["iteration"] < 0:
            continue
        place = row["key"], row["iteration"]
        if row["kind"] == "Pull_Send_Server" and row["waits"] and not row["several"]:
            search[row["key"]].append(row["d_time"])
        elif row["kind"] == "Push_Recv_Server":
            arrived[place].append(row["at"])
        elif row["kind"] == "Push_Send_Server":
            answered[place].append(row["at"])
            if row["several"]:
                answered_all[row["key"]].append(row["at"])
            elif row["waits"]:
                alone[row["key"]].append(row["d_time"])
    synchronous = sum(map(len, answered_all.values())) >= sum(map(len, alone.values()))
    between, update = defaultdict(list), defaultdict(list)
    for (key, iteration), times in arrived.items():
        between[key].append(max(times) - min(times))
        if (key, iteration) in answered:
            update[key].append(min(answered[key, iteration]) - max(times))
    names = sorted({*search, *between, *update, *alone})
    return {
        key: {
            "search": summary(search[key]),
            "synchronisation": summary(between[key]) if synchronous else None,
            "update": summary(update[key] if synchronous else alone[key]),
        }
        for key in names
    }


def main(paths):
    found = {"phases": {}, "keys": {}}
    for path in paths:
        rows = records(path)
        (node,) = {row["node"] for row in rows}
        if rows[0]["kind"].endswith("_Worker"):
            found["phases"][node] = phases(rows)
        else:
            found["keys"][node] = keys(rows)
    assert not any(name.partition(".")[0] == "hocket" for name in sys.modules)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
