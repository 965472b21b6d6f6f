"""Groups, futures and callbacks of the backend `hocket`, in one job: what PyTorch's own tests ask other backends by name."""

import pytest

from hocket.start import run
from tests.support import ranks

SCRIPTS = "tests.torch.group_scripts"
WORLD = 2


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What each rank returned, by script; each script met anew."""
    folder = tmp_path_factory.mktemp("groups")
    names = ("come_and_go", "never_awaited", "awaited_often", "in_callbacks", "hooks", "forms", "abilities")
    calls = {name: (f"{SCRIPTS}:{name}", str(folder / f"{name}.store")) for name in names}
    return ranks.by_name(calls, WORLD, folder)


def test_a_group_may_end_while_others_are_in_its_last_call(told):
    """Broken: memory of a destroyed group is zeros to the rank that still waits in it, for ever; or it is never freed."""
    for sums, alive, refused in told["come_and_go"]:
        assert sums == [2 * turn + 1 for turn in range(12)]
        assert alive == 0
        assert refused == ["BackendUsageError", "the process group was destroyed"]


def test_works_that_nobody_waits_for(told):
    """Broken: a rank that destroys its group after `async_op=True` takes the others down, or their sums lack its part."""
    assert told["never_awaited"] == [[1.0] * 8] * WORLD


def test_works_are_awaited_as_often_as_one_likes(told):
    """Broken: a second wait hangs, or a future is not the work's."""
    assert told["awaited_often"] == [[1.0, True, 1.0, True, 2]] * WORLD


def test_collectives_of_callbacks_come_after_their_own(told):
    """Broken: ranks reach callbacks at different times, and would add one rank's call to another's other call."""
    for sums in told["in_callbacks"]:
        assert sums == [[2 * (1.0 + turn) + 4 * (10_000.0 + turn), 2 * (100.0 + turn)] for turn in range(20)]


def test_hooks_of_pytorch_train_equal_replicas(told):
    """Broken: powerSGD_hook and its like, which call collectives from callbacks, are refused on one rank while others wait."""
    first = told["hooks"][0]
    for each in told["hooks"]:
        for name, (equal, total) in each.items():
            assert equal == (name != "noop"), name
            assert total == pytest.approx(first["none"][1], rel=0.1), name
    for name in ("bucket views", "static graph", "unused", "allreduce_hook", "local"):
        assert first[name][1] == pytest.approx(first["none"][1], rel=1e-5), name
    assert first["power"][1] != first["none"][1]


def test_the_hook_of_a_policy_names_who_has_ended(tmp_path, monkeypatch):
    """Broken: DDP makes a tensor of the error, and says that it cannot."""
    # The launcher would end ranks of a busy machine before they have said what they were told.
    monkeypatch.setattr(run, "REPORT_S", 60.0)
    ended = ranks.run(f"{SCRIPTS}:hook_of_a_policy", WORLD, tmp_path, str(tmp_path / "store"))
    assert ended.returned[0] is not None, ended.output
    kinds, rank, why = ended.returned[0]
    assert {"PeerError", "RuntimeError"} <= set(kinds), ended.output
    assert (rank, why) == (WORLD - 1, "lost")


def test_calls_take_the_forms_of_pytorch(told):
    """Broken: a program that gives a tensor, an op or a root in place of options ends in an AttributeError."""
    for equal, wrong in told["forms"]:
        assert all(equal.values()), equal
        assert wrong == ["TypeError"] * 3


def test_abilities_are_answered(told):
    """Broken: a program that asks before it uses something dies of the question."""
    for answers, asked, refused in told["abilities"]:
        assert {name for name, answer in answers.items() if answer} == {"supports_abort_hooks"}, answers
        assert asked == [False, False]
        assert [kind for kind, _ in refused] == ["BackendUsageError"] * 2
        for _, text in refused:
            assert "the members of this group stay as they are" in text
            assert "hint: " in text


def test_a_compiled_model_trains(tmp_path):
    """Broken: Dynamo looks into the backend's code below a compiled model, and ends the training."""
    norms = ranks.by_name({"it": (f"{SCRIPTS}:compiled", str(tmp_path / "store"))}, 1, tmp_path)["it"][0]
    assert norms[0] == pytest.approx(norms[1])
    assert norms[0] > 0
