"""JAX: `make test-frameworks`, in an environment of its own, with real ranks."""

import sys
from pathlib import Path

import jax
import pytest

from hocket.artefacts import trace
from hocket.settings import Settings
from tests.frameworks import jobs
from tests.support.commands import alone, completed

CASES = "tests.frameworks.jax_rank"
X64 = {"JAX_ENABLE_X64": "1"}
TRAININGS = {
    (model, optimizer): (f"{CASES}:train", model, optimizer)
    for model in ("perceptron", "transformer")
    for optimizer in ("sgd", "adam")
}


def digests(each):
    return [rank[0] for rank in each]


@pytest.mark.parametrize("world", [2, 4])
def test_ranks_train_what_one_process_would(world, tmp_path):
    """The model would be another one, or replicas would drift apart."""
    calls = {**TRAININGS, "one function": (f"{CASES}:train", "perceptron", "adam", "one function")}
    for name, ranks in jobs.by_name(calls, world, tmp_path).items():
        assert all(each == ranks[0][0] for each in digests(ranks)), f"{name}: replicas differ"
        assert len(set(ranks[0][0])) == 50, name
        assert ranks[0][1] <= 1e-5, name


def test_in_double_precision_too(tmp_path):
    """An error of single precision could hide behind it."""
    ranks = jobs.by_name({"x64": (f"{CASES}:train", "transformer", "adam")}, 3, tmp_path, environment=X64)[
        "x64"
    ]
    assert all(each == ranks[0][0] for each in digests(ranks))
    assert ranks[0][1] <= 1e-12


def test_ranks_on_several_hosts_train_the_same(tmp_path):
    """Sockets would be another path than shared memory."""
    calls = {"sgd": (f"{CASES}:train", "perceptron", "sgd")}
    ranks = jobs.by_name(calls, 3, tmp_path, hosts=["a", "b", "a"])["sgd"]
    assert all(each == ranks[0][0] for each in digests(ranks))
    assert ranks[0][1] <= 1e-5


def test_every_type_travels_and_the_rest_stays(tmp_path):
    """Gradients of half precision would be read as others, empty ones would hang, and integers would be averaged."""
    ranks = jobs.by_name({"dtypes": (f"{CASES}:dtypes",)}, 3, tmp_path, environment=X64)["dtypes"]
    assert ranks[0] == ranks[1] == ranks[2]
    for name in ("float64", "float32", "float16", "bfloat16"):
        assert ranks[0][name] == [name, [3.0] * 15]
    assert ranks[0]["scalar"] == ["float64", [3.0]]
    assert ranks[0]["none"][1] == []
    assert ranks[0]["count"][1] == [0, 1, 2], "rank 0's"


def test_two_executions_in_flight_with_leaves_in_any_order(tmp_path):
    """Sums would mix steps, or ranks would wait for one another for ever."""
    found = jobs.by_name({"delayed": (f"{CASES}:delayed", 1000)}, 2, tmp_path, hosts=["a", "b"])["delayed"]
    assert found == [[], []]


def test_no_gradient_is_copied_by_xla(tmp_path):
    """A step would take the memory of all gradients once more, and the time to make them twice."""
    dumped = {"XLA_FLAGS": f"--xla_dump_to={tmp_path / 'xla'}"}
    sums = jobs.by_name({"scaled": (f"{CASES}:scaled",)}, 2, tmp_path, environment=dumped)["scaled"]
    assert sums == [[4096.0, 4096.0]] * 2
    texts = [each.read_text() for each in (tmp_path / "xla").glob("*.cpu_after_optimizations.txt")]
    reduced = [text for text in texts if "hocket_take_back" in text]
    assert reduced
    for text in reduced:
        assert " copy(" not in text, text


@pytest.mark.parametrize("how", ["killed", "raised"])
def test_a_lost_rank_is_named(how, tmp_path):
    """The others would wait, not know for whom, or crash in JAX's threads."""
    ended = jobs.run([(f"{CASES}:lost", how)], 3, tmp_path)
    assert ended.outcome.code != 0
    for rank in (0, 2):
        assert ended.returned[0][rank] is not None, ended.output
        late_s, said = ended.returned[0][rank]
        assert late_s < 1.0, said
        assert "rank 1" in said, said
        assert said.startswith("ABORTED"), said


def test_mistakes_are_answered_with_a_sentence(tmp_path):
    """A traceback of JAX's would not say what to do, or a rank would hang."""
    ranks = jobs.by_name({"refused": (f"{CASES}:refused",)}, 2, tmp_path)["refused"]
    assert ranks[0] == ranks[1]
    said, sums = ranks[0]
    expected = {
        "outside": "outside of a function that hk.gradients compiles",
        "not at all": "does not call hk.mean",
        "twice": "calls hk.mean twice",
        "another tree": "another tree than was distributed",
        "another shape": "the gradient of `a` is [4] of float32",
        "another type": "the gradient of `a` is [3] of int32",
        "grad": "hk.mean cannot be differentiated",
        "vmap": "hk.mean under jax.vmap",
        "complex": "`w` is complex (complex64)",
        "key": "`key` is a key of random numbers",
        "eight bits": "`w` is of float8_e4m3fn",
        "text": "`name` is a str, not an array",
        "nothing": "nothing to distribute",
        "paths": "two leaves have the path `a.b`",
    }
    assert set(said) == set(expected)
    for name, part in expected.items():
        assert said[name].startswith("UsageError: "), said[name]
        assert part in said[name], said[name]
    assert sums == [3.0, 4.0], "training goes on"


def test_another_model_takes_the_place_of_the_first(tmp_path):
    """What was compiled for the first would send its gradients as the second's."""
    ranks = jobs.by_name({"anew": (f"{CASES}:distributed_anew",)}, 2, tmp_path)["anew"]
    assert ranks == [[[1.5] * 3, [2.5] * 4]] * 2


def test_other_models_on_other_ranks_end_the_job(tmp_path):
    """Ranks would add up gradients of different parameters."""
    ended = jobs.run([(f"{CASES}:differ",)], 2, tmp_path)
    assert ended.outcome.code != 0
    said = "the models of rank 0 and rank 1 differ: `w` is [3, 4] of f32 on rank 0 and [3, 5]"
    assert said in ended.output, ended.output


def test_settings_that_compiled_functions_cannot_keep_are_refused_on_all_ranks(tmp_path):
    """They would do nothing, without a word, or one rank would wait for what another does not do."""
    ranks = jobs.by_name({"asked": (f"{CASES}:asked",)}, 2, tmp_path)["asked"]
    assert ranks[0] == ranks[1]
    said, means = ranks[0]
    expected = {
        "search": "a search for a plan: Hocket sees neither layers",
        "reorder": "HOCKET_REORDER: Hocket sees neither layers",
        "profile": "a profile of the script: Hocket sees neither layers",
        "steps": "HOCKET_STEPS_MAX: Hocket does not see when the optimizer of a JAX script",
        "servers": "parameter servers: the optimizer of a JAX script",
        "staleness": "HOCKET_STALENESS: the optimizer of a JAX script",
        "helpers": "helpers: the optimizer of a JAX script",
        "elastic": "an elastic job cannot have gradients of a JAX script yet",
    }
    assert set(said) == set(expected)
    for name, part in expected.items():
        assert said[name].startswith(f"UsageError: {part}"), said[name]
        assert "\nhint: " in said[name], said[name]
    assert means == [1.5] * 3, "training goes on"


@pytest.mark.parametrize(
    ("kind", "said"),
    {
        "gates": "gates: Hocket sees neither layers",
        "owners": "updates by owners: the optimizer of a JAX script",
        "local": "local steps: the optimizer of a JAX script",
        "helpers": "helpers: the optimizer of a JAX script",
        "servers": "parameter servers: the optimizer of a JAX script",
        "turns": "merged or late gradients: the optimizer of a JAX script",
        "rows": "sparse gradients: a JAX script makes dense ones",
    }.items(),
)
def test_plans_that_compiled_functions_cannot_keep_are_refused_on_all_ranks(kind, said, tmp_path):
    """Ranks would train something else than was asked for, or hang."""
    ended = jobs.run([(f"{CASES}:planned", kind)], 2, tmp_path)
    for rank in ended.returned[0]:
        # Whoever comes second may hear of the first one's error before it makes its own.
        assert rank is not None, ended.output
        assert said in rank
        assert "\nhint: " in rank


@pytest.mark.parametrize("looks", [True, False])
def test_a_job_without_a_plan_looks_at_its_network_as_it_starts(looks, tmp_path):
    """Its plan would follow from names of hosts alone; or it would look although it was told not to."""
    settings = Settings(timeout_s=60, start_timeout_s=60, trace=str(tmp_path / "trace"), autopilot=looks)
    (tmp_path / "trace").mkdir()
    calls = {"default": (f"{CASES}:by_default",)}
    ranks = jobs.by_name(calls, 4, tmp_path, hosts=["a", "b", "c", "d"], settings=settings)["default"]
    assert ranks == [[[1.5, 1.5], [1.5, 1.5]]] * 4
    found = trace.read(tmp_path / "trace").run
    if looks:
        assert [host.name for host in found.cluster.hosts] == ["a", "b", "c", "d"]
        assert "for this cluster" in found.plan.reason
    else:
        assert found.cluster is None
        assert "Nothing was measured" in found.plan.reason


def test_several_devices_are_refused(tmp_path):
    """Each would have gradients of its own, of which one would travel."""
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    ended = jobs.run([(f"{CASES}:several_devices",)], 1, tmp_path, environment=flags)
    assert ended.outcome.code != 0
    assert "UsageError: this process has 2 devices of JAX, and a rank has one" in ended.output


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            "left_out",
            "turn 0: after 2 s, this rank has not used the means of `b`\nhint: ",
        ),
        ("in_a_loop", "the gradient of `parameter`: it comes twice in one turn"),
    ],
)
def test_functions_that_make_too_few_or_too_many_gradients(call, said, tmp_path):
    """They would hang, or send one gradient as another."""
    settings = Settings(timeout_s=2, start_timeout_s=60)
    ended = jobs.run([(f"{CASES}:{call}",)], 1, tmp_path, settings=settings)
    assert ended.returned[0][0] is not None, ended.output
    assert said in ended.returned[0][0]


@pytest.mark.parametrize("policy", ["int8", "partial_f16", "power_sgd", "top_k", "two_level"])
def test_policies_do_what_they_do_under_pytorch(policy, tmp_path):
    """A policy that was tried with one framework would do something else with the other."""
    calls = {"policy": (f"{CASES}:by_policy", policy)}
    ranks = jobs.by_name(calls, 4, tmp_path, hosts=["a", "a", "b", "b"])["policy"]
    assert all(each == ranks[0] for each in ranks), "replicas differ"
    under_jax, under_torch = ranks[0]
    assert len(set(under_jax)) == 5
    assert under_jax == under_torch


@pytest.mark.parametrize("policy", ["int8", "power_sgd", "top_k"])
def test_a_checkpoint_goes_on_with_equal_bits(policy, tmp_path):
    """What a policy owes to later steps would be lost with each restart, and nobody would know."""
    whole, resumed, forgot = (
        jobs.by_name({"goes on": (f"{CASES}:goes_on", policy, str(tmp_path), *how)}, 2, tmp_path)["goes on"]
        for how in ((0,), (6,), (6, False))
    )
    for ranks in (whole, resumed, forgot):
        assert ranks[0] == ranks[1], "replicas differ"
    assert resumed[0] == whole[0][6:]
    assert forgot[0][0] != whole[0][6], "the policy keeps nothing that could be lost"


def test_states_that_are_none_or_come_too_late_are_refused(tmp_path):
    """A job would go on from something else than its user believes."""
    ranks = jobs.by_name({"restored": (f"{CASES}:restored",)}, 2, tmp_path)["restored"]
    assert ranks[0].keys() == {"nothing", "without", "late"}
    for own in ranks:
        assert own["nothing"].startswith(
            "UsageError: load_state_dict: this is not what hk.state_dict returned"
        )
        assert own["without"].startswith("UsageError: load_state_dict: no state of `")
    assert ranks[0]["late"].startswith("UsageError: load_state_dict: rank 0 has begun turn 0\nhint: ")


def test_a_function_without_ranks_is_one_of_jax(tmp_path):
    """A script that is run alone, without the launcher, would not work."""
    script = (
        "import jax, jax.numpy as jnp, hocket.jax as hk\n"
        "params = hk.distribute({'w': jnp.ones(3)})\n"
        "grads = hk.gradients(lambda p: hk.mean(jax.grad(lambda p: (p['w'] ** 2).sum())(p)))(params)\n"
        "print(grads['w'].tolist())\n"
    )
    ran = alone([sys.executable, "-c", script], cwd=tmp_path, JAX_PLATFORMS="cpu")
    assert (ran.returncode, ran.stdout) == (0, "[2.0, 2.0, 2.0]\n"), ran.stderr


def test_the_structs_are_those_of_the_header():
    """Fields would be read where this jaxlib has others."""
    header = Path(jax.ffi.include_dir()) / "xla/ffi/api/c_api.h"
    sizes = {
        "XLA_FFI_Api_Version": 24,
        "XLA_FFI_Buffer": 48,
        "XLA_FFI_Args": 40,
        "XLA_FFI_Rets": 40,
        "XLA_FFI_Attrs": 48,
        "XLA_FFI_Metadata": 48,
        "XLA_FFI_Metadata_Extension": 32,
        "XLA_FFI_CallFrame": 176,
    }
    offsets = {
        ("XLA_FFI_CallFrame", "stage"): 32,
        ("XLA_FFI_CallFrame", "args"): 40,
        ("XLA_FFI_CallFrame", "attrs"): 120,
        ("XLA_FFI_CallFrame", "future"): 168,
        ("XLA_FFI_Api", "XLA_FFI_Error_Create"): 48,
        ("XLA_FFI_Api", "XLA_FFI_Error_Destroy"): 64,
        ("XLA_FFI_Api", "XLA_FFI_Future_Create"): 152,
        ("XLA_FFI_Api", "XLA_FFI_Future_SetAvailable"): 160,
        ("XLA_FFI_Api", "XLA_FFI_Future_SetError"): 168,
    }
    lines = [f'#include "{header}"']
    lines += [f'_Static_assert(sizeof({name}) == {size}, "{name}");' for name, size in sizes.items()]
    lines += [
        f'_Static_assert(offsetof({name}, {member}) == {offset}, "{name}.{member}");'
        for (name, member), offset in offsets.items()
    ]
    ran = completed(["cc", "-fsyntax-only", "-x", "c", "-"], input="\n".join(lines))
    assert ran.returncode == 0, ran.stderr
