"""Plan files with something wrong, at random: each is refused, and the message names what is wrong."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.artefacts import files
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import Plan
from hocket.artefacts.plan_check import check
from hocket.errors import ArtefactError
from tests.support.random_plans import random_plan

GRADIENTS = [Gradient(f"p{at}", (size,), "f32") for at, size in enumerate([5, 7, 40, 3])]
WORLD = 4

Tree = dict[str, Any]


def somewhere(draw: random.Random, tree: Tree) -> Tree:
    """An object of the tree: the plan, a bucket, a route, a part or a rule."""
    bucket = draw.choice(tree["buckets"])
    parts = draw.choice(bucket["parts"])
    return draw.choice(
        [tree, bucket, bucket["route"], parts, bucket["rule"], tree["schedule"], tree["evidence"]]
    )


def unknown_field(draw: random.Random, tree: Tree) -> str:
    somewhere(draw, tree)["speed"] = draw.choice([1, "fast", None, []])
    return "unknown field `speed`"


def missing_field(draw: random.Random, tree: Tree) -> str:
    each = draw.choice([tree, draw.choice(tree["buckets"])])
    name = draw.choice(
        [key for key in ("world", "label", "workers", "dtype", "order", "parts") if key in each]
    )
    del each[name]
    return f"missing required field `{name}`"


def other_type(draw: random.Random, tree: Tree) -> str:
    draw.choice(tree["buckets"])[draw.choice(["elements", "order", "priority", "route", "codec"])] = {"no": 1}
    return "is not a plan"


def overlap(draw: random.Random, tree: Tree) -> str:
    part = draw.choice(
        [each for bucket in tree["buckets"] for each in bucket["parts"] if each["stop"] > each["start"]]
    )
    draw.choice(tree["buckets"])["parts"].append(dict(part))
    return f"{part['variable']}: element {part['start']} is in two parts"


def hole(draw: random.Random, tree: Tree) -> str:
    bucket = draw.choice(
        [each for each in tree["buckets"] if any(p["stop"] > p["start"] for p in each["parts"])]
    )
    part = draw.choice([each for each in bucket["parts"] if each["stop"] > each["start"]])
    part["stop"] -= 1
    bucket["elements"] -= 1
    return rf"{part['variable']}(: elements \d+ to \d+ are| is) in no part"


def foreign_rank(draw: random.Random, tree: Tree) -> str:
    bucket, rank = draw.choice(tree["buckets"]), draw.choice([-1, WORLD, 99])
    if bucket["route"]["type"] == "owned" and draw.random() < 0.5:
        bucket["route"]["owners"].append({"rank": rank, "share": 1})
        return f"owner {rank} is not of a world of {WORLD}"
    if draw.random() < 0.5:
        bucket |= {"codec": "f16", "codec_links": [[0, rank]]}
        return f"no pair of a world of {WORLD}"
    bucket["order"] = [*bucket["order"][1:], rank]
    return f"is not of ranks of a world of {WORLD}"


def twice(draw: random.Random, tree: Tree) -> str:
    bucket = draw.choice(tree["buckets"])
    bucket["order"] = [*bucket["order"], bucket["order"][0]]
    return "each once"


def other_algorithm(draw: random.Random, tree: Tree) -> str:
    draw.choice(tree["buckets"])["route"] = {"type": "all_reduce", "algorithm": "star"}
    return "`star` is not one of"


def other_route(draw: random.Random, tree: Tree) -> str:
    draw.choice(tree["buckets"])["route"] = {"type": "pigeon"}
    return "pigeon"


def other_model(draw: random.Random, tree: Tree) -> str:
    draw.choice(draw.choice(tree["buckets"])["parts"])["variable"] = "v"
    return "v is not a parameter of this one"


def more_elements(draw: random.Random, tree: Tree) -> str:
    bucket = draw.choice(tree["buckets"])
    bucket["elements"] += draw.randint(1, 1000)
    return r"has \d+ elements, and its parts \d+"


def other_dtype(draw: random.Random, tree: Tree) -> str:
    draw.choice(tree["buckets"])["dtype"] = draw.choice(["f16", "f64"])
    return "which is f32"


def promise_less(draw: random.Random, tree: Tree) -> str:
    tree["promise"] = "exact"
    draw.choice(tree["buckets"]).update({"codec": "f16", "codec_links": [[0, 1]]})
    return "`exact` does not allow"


def foreign_workers(draw: random.Random, tree: Tree) -> str:
    tree |= {"workers": draw.choice([[], [1, 0], [0, 0, 1], [0, WORLD]])}
    return f"are not ranks of a world of {WORLD}"


WRONG: list[Callable[[random.Random, Tree], str]] = [
    unknown_field,
    missing_field,
    other_type,
    overlap,
    hole,
    foreign_rank,
    twice,
    other_algorithm,
    other_route,
    other_model,
    more_elements,
    other_dtype,
    promise_less,
    foreign_workers,
]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda each: each.__name__)
def test_what_is_wrong_is_named(wrong: Callable[[random.Random, Tree], str], tmp_path: Path) -> None:
    """Broken: gradients would be lost or added twice by a plan that somebody edited, or nobody would be told why it is refused."""
    path = tmp_path / "plan.json"

    @settings(max_examples=40)
    @given(st.integers(0, 2**32))
    def refused(seed: int) -> None:
        draw = random.Random(seed)  # noqa: S311
        tree = msgspec.to_builtins(random_plan(draw, GRADIENTS, WORLD))
        tree = msgspec.json.decode(msgspec.json.encode(tree))
        said = wrong(draw, tree)
        path.write_bytes(msgspec.json.encode(tree))
        with pytest.raises(ArtefactError, match=said):
            check(files.read(path, Plan), GRADIENTS)

    refused()


@settings(max_examples=200)
@given(st.integers(0, 2**32))
def test_what_is_sound_reads_back_equal(seed: int) -> None:
    """Broken: what the planner writes would be refused, or read as another plan."""
    plan = random_plan(random.Random(seed), GRADIENTS, WORLD)  # noqa: S311
    tree = msgspec.json.decode(files.encode(plan))
    read = msgspec.convert(tree, Plan)
    assert read == plan
    check(read, GRADIENTS)
