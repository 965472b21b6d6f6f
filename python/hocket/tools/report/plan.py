"""Section on the chosen plan and the reasons: in words, as a path through the racks, and bucket by bucket."""

from __future__ import annotations

from hocket.artefacts.algorithms import BY_NAME
from hocket.artefacts.plan import AllReduce, Bucket, Gathered, Owned, Plan, Served, Traced
from hocket.planning.routes import name
from hocket.tools.report import quantity
from hocket.tools.report.markup import Html, Row, clipped, joined, table, tag
from hocket.tools.report.material import Material
from hocket.tools.report.matrix import rack_number
from hocket.tools.report.section import Section, absent

# More rows are not read; the caption counts those left out.
BUCKETS_MAX, RANKS_MAX, ORDERS_MAX, NAME_CHARACTERS_MAX = 64, 32, 4, 100
NAME, QUESTION = "plan", "Which plan was chosen, and why?"
ELEMENT_BYTES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "f64": 8,
    "f32": 4,
    "f16": 2,
    "bf16": 2,
}


def section(material: Material) -> Section:
    """Return the plan in `run.json`; one line when the run had none."""
    plan = material.run.plan
    if plan is None:
        return absent(
            NAME, QUESTION, "The run carried no plan: `hocket plan` makes one from a cluster and a profile."
        )
    compared = material.comparison.plan_reason if material.comparison else ""
    reason = plan.reason or compared
    body = joined(
        (
            tag("p", tag("strong", plan.label), class_="chosen"),
            tag("p", reason) if reason else "",
            *(_path(material, order, buckets) for order, buckets in _orders(plan).items()),
            tag("p", _words(plan)),
            _buckets(plan),
        )
    )
    numbers = {
        "label": plan.label,
        "reason": reason,
        "orders": list(_orders(plan)),
        "predicted_step_s": plan.predicted_step_s,
    }
    return Section(NAME, QUESTION, body, numbers=numbers)


def _orders(plan: Plan) -> dict[tuple[int, ...], list[int]]:
    """Return the buckets that have each order."""
    found: dict[tuple[int, ...], list[int]] = {}
    for index, bucket in enumerate(plan.buckets):
        found.setdefault(bucket.order, []).append(index)
    # More are not read; buckets name theirs by number.
    return dict(list(found.items())[:ORDERS_MAX])


def _path(material: Material, order: tuple[int, ...], indices: list[int]) -> Html:
    """Return the ranks in logical order, each in its rack's colour. `indices`: the buckets with that order."""
    racks = [material.rack(rank) for rank in range(material.run.world)]
    items = []
    for rank in order[:RANKS_MAX]:
        rack = racks[rank] if 0 <= rank < len(racks) else None
        place = tag("small", rack, class_=f"rack r{rack_number(rack, racks)}") if rack else ""
        items.append(tag("li", f"{material.host(rank)} ", tag("small", f"rank {rank}"), place))
    more = tag("li", f"and {len(order) - RANKS_MAX} more") if len(order) > RANKS_MAX else ""
    plan = material.run.plan
    algorithms = {name(plan.buckets[index].route) for index in indices} if plan else set()
    arrows = " ring" if "ring" in algorithms else " line" if "two_level" in algorithms else ""
    return tag(
        "ol", *items, more, class_=f"path{arrows}", aria_label=f"Rank order of {_counted(len(indices))}"
    )


def _words(plan: Plan) -> str:
    """Return up to three sentences on the gradients' way."""
    if not plan.buckets:
        return "It has no buckets."
    total = sum(_size(bucket) for bucket in plan.buckets)
    algorithms = " and ".join(sorted({_algorithm(bucket) for bucket in plan.buckets}))
    words = f"Gradients of {quantity.size(total)} in {_counted(len(plan.buckets))} travel by {algorithms}."
    codecs = sorted({bucket.codec for bucket in plan.buckets} - {"none"})
    if codecs:
        links = max(len(bucket.codec_links) for bucket in plan.buckets)
        pairs = plan.world * (plan.world - 1)
        words += f" Between {links} of the {pairs} ordered rank pairs values travel as {' or '.join(codecs)}."
    else:
        words += " Values travel as they are, uncompressed."
    chunks = sorted({bucket.chunk_bytes for bucket in plan.buckets})
    words += f" Transfers are pipelined in chunks of {' or '.join(map(quantity.block, chunks[:4]))}."
    if plan.predicted_step_s > 0:
        words += f" Predicted: {quantity.seconds(plan.predicted_step_s)} a step."
    return words


def _counted(buckets: int) -> str:
    return "one bucket" if buckets == 1 else f"{buckets} buckets"


def _algorithm(bucket: Bucket) -> str:
    match bucket.route:
        case AllReduce(algorithm=algorithm, sizes=sizes):
            entry = BY_NAME[algorithm]
            numbers = ", ".join(map(str, sizes))
            half = len(sizes) // 2
            sides = (
                f"{verb} {' : '.join(map(str, part))}"
                for verb, part in (("collecting", sizes[:half]), ("spreading", sizes[half:]))
            )
            behind = {
                "nothing": "",
                "sizes": f" (groups of {numbers})",
                "base": f" (base {numbers})",
                "trees": f" ({len(sizes) // (2 * len(bucket.order) + 1)} pairs)",
                "shares": f" ({', '.join(sides)}; ranks {', '.join(map(str, bucket.order))})",
            }
            return entry.title + behind.get(entry.takes, f" ({numbers} of them)")
        case Owned(owners=owners):
            return f"owners (ranks {', '.join(str(owner.rank) for owner in owners)})"
        case Served(servers=servers):
            return f"servers (ranks {', '.join(map(str, servers))})"
        case Gathered(rows=rows):
            return f"rows (at most {rows})"
        case Traced(policy=policy):
            return f"policy {policy}"


def _buckets(plan: Plan) -> Html:
    largest = quantity.greatest(_size(bucket) for bucket in plan.buckets)
    rows = []
    for index, bucket in enumerate(plan.buckets[:BUCKETS_MAX]):
        first, last = bucket.variables[:1], bucket.variables[-1:]
        span = " … ".join(dict.fromkeys(first + last))
        codec = bucket.codec
        cells = (
            str(index),
            tag("span", clipped(span, NAME_CHARACTERS_MAX), class_="name"),
            str(len(bucket.variables)),
            quantity.size(_size(bucket), like=largest),
            name(bucket.route).replace("_", "-"),
            quantity.UNKNOWN if codec == "none" else codec,
            str(bucket.priority),
        )
        rows.append(Row(cells))
    caption = "Buckets; lower priority numbers go first"
    if len(plan.buckets) > BUCKETS_MAX:
        caption += f" (the first {BUCKETS_MAX} of {len(plan.buckets)})"
    head = ("Bucket", "First … last gradient", "Gradients", "Bytes", "Algorithm", "Codec", "Priority")
    return tag(
        "details", tag("summary", "Bucket by bucket"), table(head, rows, caption=caption, class_="numbers")
    )


def _size(bucket: Bucket) -> int:
    return bucket.elements * ELEMENT_BYTES.get(bucket.dtype, 4)
