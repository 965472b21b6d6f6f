"""Sparse gradients that travel as rows, on real ranks."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from hocket.artefacts import files
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import Bucket, Gathered, Part
from hocket.artefacts.profile import Profile
from hocket.errors import ArtefactError, UsageError
from hocket.planning.buckets import plan_of
from hocket.settings import Settings
from hocket.training.memory.runnable import check_runs
from tests.support import ranks
from tests.torch.gathered_scripts import STEPS, batches

SCRIPTS = "tests.torch.gathered_scripts"
WORLD = 3


def touched(step: int) -> list[int]:
    return sorted({word for rank in range(WORLD) for word in batches(rank)[step]})


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, ...], list[Any]]:
    """By script and its arguments: what each rank returned."""
    trained = itertools.product(("sparse", "dense"), (("sgd",), ("sgd", "gates")))
    calls = [
        *(("trained", kind, *how) for kind, how in trained),
        ("trained", "sparse", "sparse_adam"),
        *((name,) for name in ("accumulated", "unused", "tied", "joined")),
    ]
    named = {call: (f"{SCRIPTS}:{call[0]}", *call[1:]) for call in calls}
    return ranks.by_name(named, WORLD, tmp_path_factory.mktemp("rows"))


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_rows_train_the_model_that_plain_means_do(kind: str, found: dict[tuple[str, ...], list[Any]]) -> None:
    """Broken: words that come twice, batches without words or with more than the bound would train another model."""
    returned = found["trained", kind, "sgd"]
    for rank, each in enumerate(returned):
        assert each["far"] < 1e-12
        assert each["bits"] == returned[0]["bits"], "replicas differ"
        assert each["touched"] == [touched(step) for step in range(STEPS)]
        assert each["sparse"] == [kind == "sparse"] * STEPS
        # Both embeddings have too many rows in the fourth step.
        assert len(each["told"]) == (0 if rank else 2)
        assert all(line.startswith("iteration 3: the gradient of `") for line in each["told"])


def test_an_optimizer_of_sparse_gradients_moves_touched_rows_alone(
    found: dict[tuple[str, ...], list[Any]],
) -> None:
    """Broken: SparseAdam would refuse dense gradients, or move the moments of rows that no rank touched, also in the iteration that
    is reduced densely."""
    for each in found["trained", "sparse", "sparse_adam"]:
        assert each["far"] < 1e-12
        assert each["touched"] == [touched(step) for step in range(STEPS)]


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_layers_wait_for_their_own_rows(kind: str, found: dict[tuple[str, ...], list[Any]]) -> None:
    """Broken: ranks that reach two embeddings in different orders would wait for one another's dense iteration for ever."""
    returned = found["trained", kind, "sgd", "gates"]
    for each in returned:
        assert each["far"] < 1e-12
        assert each["bits"] == returned[0]["bits"]


def test_gradients_that_accumulate_and_that_some_ranks_make(found: dict[tuple[str, ...], list[Any]]) -> None:
    """Broken: `no_sync`, unused or shared embeddings would lose rows, or find the gradients of the step before."""
    assert max(found["accumulated",]) < 1e-12
    assert found["unused",] == [[[2, 5], None]] * WORLD
    assert found["tied",] == [[False, True] * 2] * WORLD
    assert found["joined",] == [sorted({*range(rank, WORLD), 9}) for rank in range(WORLD)]


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_a_profile_says_how_many_rows_a_step_touches(kind: str, tmp_path: Path) -> None:
    """Broken: a plan would be made for tables, not for what travels of them."""
    out = tmp_path / "profile.json"
    settings = Settings(timeout_s=30, start_timeout_s=30, profile_out=str(out))
    ended = ranks.run(f"{SCRIPTS}:profiled", 2, tmp_path, kind, settings=settings)
    assert ended.outcome.code == 0, ended.output
    found = {each.name: each for each in files.read(out, Profile).gradients}
    assert {name: (each.sparse, each.touched) for name, each in found.items()} == {
        "words.weight": (kind == "sparse", 5),
        "other.weight": (kind == "sparse", 5),
        "out.weight": (False, 3),
        "out.bias": (False, None),
    }


def rows_plan(**changes: object) -> object:
    fields = {
        "parts": (Part(variable="w"),),
        "elements": 12,
        "dtype": "f32",
        "route": Gathered(rows=2, row_elements=4),
        "order": (0, 1),
        "priority": 0,
    }
    return plan_of([Bucket(**(fields | changes))], 2, label="")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"route": Gathered(rows=0, row_elements=4)}, "0 rows by `ring`"),
        ({"route": Gathered(rows=2, row_elements=5)}, "12 elements are no rows of 5"),
        ({"route": Gathered(rows=2, row_elements=6)}, "rows of 6, w has 3"),
        ({"route": Gathered(rows=2, row_elements=4, algorithm="two_level")}, "2 rows by `two_level`"),
        ({"route": Gathered(rows=2, row_elements=4, algorithm="bcube")}, "2 rows by `bcube`"),
        ({"codec": "f16", "codec_links": ((0, 1),)}, "rows have no codec"),
        (
            {"parts": (Part(variable="w", stop=4), Part(variable="w", start=4))},
            "rows are of one whole variable",
        ),
    ],
)
def test_what_is_no_rows_is_refused_by_name(changes: dict[str, object], said: str) -> None:
    """Broken: a slip in a plan would end in a wrong gradient or a traceback."""
    model = {"w": Gradient("w", (3, 4), "f32")}
    check_runs(rows_plan(), model)
    with pytest.raises((ArtefactError, UsageError), match=said):
        check_runs(rows_plan(**changes), model)
