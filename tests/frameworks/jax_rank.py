"""What ranks of the tests do with JAX: each function returns what the tests compare."""

import dataclasses
import functools
import hashlib
import os
import pickle
import signal
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import optax

import hocket.jax as hk
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.local import Local, localized
from hocket.artefacts.plan import AllReduce, Due, Gathered, Owned, Owner, Schedule, Served, Turn
from hocket.errors import Error
from hocket.planning.buckets import buckets, plan_of
from hocket.policies import READY_MADE
from hocket.settings import Settings
from tests.frameworks.jax_models import MODELS, OPTIMIZERS
from tests.frameworks.policies import SHAPES, drawn, of_torch

RANK, WORLD = int(os.environ.get("HOCKET_RANK", "0")), int(os.environ.get("HOCKET_WORLD", "1"))
STEPS = 50


def digest(tree):
    leaves = jax.tree_util.tree_leaves(tree)
    return hashlib.sha256(b"".join(np.asarray(each).tobytes() for each in leaves)).hexdigest()


def train(model, optimizer, form="two functions", steps=STEPS):
    """(digest of the parameters after each step, their distance from one process's on the batches of all ranks)."""
    make, batch, loss_of = MODELS[model]
    tool = OPTIMIZERS[optimizer]()
    # Rank 0's values count.
    params = hk.distribute(make(RANK))
    digests = []

    def apply(params, state, grads):
        updates, state = tool.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    if form == "two functions":

        @hk.gradients
        def gradients(params, batch):
            loss, grads = jax.value_and_grad(loss_of)(params, batch)
            return loss, hk.mean(grads)

        update = jax.jit(apply, donate_argnums=(0, 1))
        state = tool.init(params)
        for step in range(steps):
            _, grads = gradients(params, batch(RANK, step))
            params, state = update(params, state, grads)
            digests.append(digest(params))
    else:
        tool = optax.chain(hk.all_reduce_gradients(), tool)

        @functools.partial(hk.gradients, donate_argnums=(0, 1))
        def step_of(params, state, batch):
            return apply(params, state, jax.grad(loss_of)(params, batch))

        state = tool.init(params)
        for step in range(steps):
            params, state = step_of(params, state, batch(RANK, step))
            digests.append(digest(params))
    return digests, distance(params, alone(model, optimizer, steps))


def alone(model, optimizer, steps):
    """One process on the batches of all ranks, without Hocket."""
    make, batch, loss_of = MODELS[model]
    tool = OPTIMIZERS[optimizer]()
    params = jax.tree_util.tree_map(jnp.asarray, make(0))
    state = tool.init(params)
    grad = jax.jit(jax.grad(loss_of))
    for step in range(steps):
        each = [batch(rank, step) for rank in range(WORLD)]
        grads = grad(params, tuple(np.concatenate(parts) for parts in zip(*each, strict=True)))
        updates, state = tool.update(grads, state, params)
        params = optax.apply_updates(params, updates)
    return params


def distance(one, other):
    flat = [
        np.concatenate([np.asarray(each, np.float64).ravel() for each in jax.tree_util.tree_leaves(tree)])
        for tree in (one, other)
    ]
    return float(np.linalg.norm(flat[0] - flat[1]) / np.linalg.norm(flat[1]))


def dtypes():
    """Means of small integers are exact in every type; leaves that do not travel come back as they are."""
    names = ["float64", "float32", "float16", "bfloat16"]
    params = {name: jnp.zeros((3, 5), name) for name in names}
    params |= {"count": np.arange(3) + RANK, "none": jnp.zeros((0, 4)), "scalar": jnp.zeros(())}
    params = hk.distribute(params)
    grads = {
        name: jnp.full(each.shape, 2 * RANK + 1).astype(each.dtype) if name != "count" else each
        for name, each in params.items()
    }
    means = hk.gradients(hk.mean)(grads)
    return {
        name: [str(each.dtype), np.asarray(each, np.float64).ravel().tolist()] for name, each in means.items()
    }


def delayed(steps):
    """Leaves come in another order on each rank and step, two executions in flight: what differs from the right sums."""
    count, size = 6, 40
    params = hk.distribute([jnp.zeros(size + at) for at in range(count)])

    @hk.gradients
    def gradients(values, rounds):
        def slow(value, rounds):
            # As many products of matrices as the rank's chance says, before the gradient is there.
            seed = jnp.full((24, 24), 1e-3)
            spent = jax.lax.fori_loop(0, rounds, lambda _, each: jnp.tanh(each @ seed), seed)
            return value + 0 * spent[0, 0]

        return hk.mean([slow(value, rounds[at]) for at, value in enumerate(values)])

    random = np.random.default_rng(RANK)
    under_way, wrong = [], []
    for step in range(steps):
        values = [
            np.full(each.shape, float(8 * step + at + RANK), np.float32) for at, each in enumerate(params)
        ]
        under_way.append((step, gradients(values, random.integers(0, 60, count))))
        if len(under_way) == 2:
            wrong += check(*under_way.pop(0))
    return wrong + check(*under_way.pop())


def check(step, means):
    centre = (WORLD - 1) / 2
    return [
        [step, at]
        for at, each in enumerate(means)
        if not np.array_equal(each, np.full(each.shape, 8 * step + at + centre, np.float32))
    ]


def scaled():
    """Gradients that an elementwise op has made, which both calls into Hocket need."""
    params = hk.distribute([jnp.zeros((64, 64)), jnp.zeros(4096)])
    gradients = hk.gradients(lambda grads: hk.mean([2 * each for each in grads]))
    return [float(each.sum()) for each in gradients([each + RANK for each in params])]


def lost(how):
    """Rank 1 ends in the middle of a step: how soon the others notice, what they are told, and by which exception."""
    params = hk.distribute({"w": jnp.zeros((500, 500)), "b": jnp.zeros(500)})

    @hk.gradients
    def gradients(params, x):
        return hk.mean(jax.grad(lambda params: jnp.sum((x @ params["w"] + params["b"]) ** 2))(params))

    x = jnp.ones((4, 500))
    for _ in range(3):
        jax.block_until_ready(gradients(params, x))
    if RANK == 1:
        time.sleep(0.5)
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError("enough")
    means = gradients(params, x)
    began_s = time.monotonic()
    try:
        jax.block_until_ready(means)
    except jax.errors.JaxRuntimeError as error:
        return [time.monotonic() - began_s - 0.5, str(error)]
    return None


def refused():
    """What each mistake is answered, and that training goes on after it."""
    params = hk.distribute({"a": jnp.ones(3), "b": jnp.ones((2, 2))})
    grads = jax.tree_util.tree_map(jnp.ones_like, params)

    def loss(params):
        return sum(jnp.sum(each) for each in jax.tree_util.tree_leaves(hk.mean(params)))

    cases = {
        "outside": lambda: hk.mean(grads),
        "not at all": lambda: hk.gradients(lambda grads: grads)(grads),
        "twice": lambda: hk.gradients(lambda grads: hk.mean(hk.mean(grads)))(grads),
        "another tree": lambda: hk.gradients(lambda grads: hk.mean({"a": grads["a"]}))(grads),
        "another shape": lambda: hk.gradients(lambda grads: hk.mean({**grads, "a": jnp.ones(4)}))(grads),
        "another type": lambda: hk.gradients(lambda grads: hk.mean({**grads, "a": jnp.ones(3, int)}))(grads),
        "grad": lambda: hk.gradients(jax.grad(loss))(grads),
        "vmap": lambda: hk.gradients(jax.vmap(hk.mean))({name: each[None] for name, each in grads.items()}),
        "complex": lambda: hk.distribute({"w": jnp.ones(3, complex)}),
        "key": lambda: hk.distribute({"w": jnp.ones(3), "key": jax.random.key(0)}),
        "eight bits": lambda: hk.distribute({"w": jnp.ones(3, "float8_e4m3fn")}),
        "text": lambda: hk.distribute({"w": jnp.ones(3), "name": "net"}),
        "nothing": lambda: hk.distribute({"count": jnp.ones(3, int)}),
        "paths": lambda: hk.distribute({"a": {"b": jnp.ones(3)}, "a.b": jnp.ones(3)}),
    }
    said = {}
    for name, call in cases.items():
        try:
            jax.block_until_ready(call())
        except Error as error:
            said[name] = f"{type(error).__name__}: {error}"
    means = hk.gradients(hk.mean)(grads)
    return said, [float(each.sum()) for each in jax.tree_util.tree_leaves(means)]


def distributed_anew():
    """A function of the model before is refused; a new one trains the new model, whatever was compiled."""
    hk.distribute(jnp.ones(3))
    kept = hk.gradients(hk.mean)
    first = kept(jnp.full(3, RANK + 1.0))
    lowered = jax.block_until_ready(first).tolist()
    hk.distribute(jnp.ones(4))
    return lowered, kept(jnp.full(4, RANK + 2.0)).tolist()


def several_devices():
    hk.distribute(jnp.ones(3))


def differ():
    """Rank 1 has another tree."""
    hk.distribute({"w": jnp.ones((3, 4 + RANK))})


ASKED = {
    "search": {"search": "1m"},
    "reorder": {"reorder": True},
    "profile": {"profile_out": "profile.json"},
    "steps": {"steps_max": 3},
    "servers": {"servers": 1},
    "staleness": {"staleness": "2"},
    "helpers": {"helpers": 1},
    "elastic": {"coordinator": "127.0.0.1:9"},
}


def asked():
    """What each setting is answered that compiled functions cannot keep, and that training goes on after it."""
    said = {}
    for name, options in ASKED.items():
        settings = dataclasses.replace(Settings.from_environment(), **options)
        try:
            hk.distribute(jnp.ones(3), settings=settings)
        except Error as error:
            said[name] = f"{type(error).__name__}: {error}"
    hk.distribute(jnp.ones(3))
    return said, hk.gradients(hk.mean)(jnp.full(3, RANK + 1.0)).tolist()


def plan_with(kind):
    """A plan of one bucket that has something of its own."""
    gradients = [Gradient("w", (4, 2), "f32"), Gradient("b", (6,), "f32")]
    order = tuple(range(WORLD))
    last = (Owner(rank=WORLD - 1),)
    routes = {
        "owners": Owned(update="owners", owners=tuple(Owner(rank=rank) for rank in order)),
        "helpers": Owned(owners=last),
        "servers": Served(servers=(WORLD - 1,)),
        "rows": Gathered(rows=2, row_elements=2),
    }
    turn = Turn(first=0, last=1, due=Due(iteration=1))
    schedules = {
        "gates": Schedule(overlap="gates"),
        "turns": Schedule(period=2, turns=((turn,),)),
    }
    layout = [gradients[:1]] if kind == "rows" else [gradients]
    plan = plan_of(buckets(layout, routes.get(kind, AllReduce(algorithm="ring")), order), WORLD, label=kind)
    trains = order[:-1] if kind in ("helpers", "servers") else order
    return msgspec.structs.replace(plan, workers=trains, schedule=schedules.get(kind, Schedule()))


def planned(kind):
    """What a plan or policy is answered that compiled functions cannot keep."""
    plan = plan_with("turns" if kind == "local" else kind)
    plan = localized(plan, Local(every=2)) if kind == "local" else plan
    try:
        hk.distribute({"w": jnp.ones((4, 2)), "b": jnp.ones(6)}, plan=plan)
    except Error as error:
        return f"{type(error).__name__}: {error}"
    return None


def by_default():
    """Means of a job that was given no plan."""
    params = hk.distribute({"w": jnp.ones((300, 300)), "b": jnp.ones(300)})
    reduce = hk.gradients(hk.mean)
    grads = jax.tree_util.tree_map(lambda each: jnp.full_like(each, RANK), params)
    for _ in range(4):
        means = reduce(grads)
    return [float(each.min()) for each in means.values()], [float(each.max()) for each in means.values()]


def by_policy(name):
    """Bits of the results of some steps, by a policy: under JAX, and under PyTorch."""
    hk.distribute(
        {each: np.zeros(shape, np.float32) for each, shape in SHAPES.items()}, policy=READY_MADE[name]()
    )
    reduce = hk.gradients(hk.mean)
    under_jax = [digest(reduce(drawn(step))) for step in range(5)]
    return under_jax, of_torch(READY_MADE[name]())


CHECKPOINT, LAST = 6, 12
"""Steps after which a training is saved, and ends."""


def goes_on(policy, directory, first, remembers=True):
    """Parameters' digests after each step from `first` on. A job that begins at 0 leaves a checkpoint, others go on from that; if
    they do not `remember`, without what Hocket keeps."""
    make, batch, loss_of = MODELS["perceptron"]
    tool = OPTIMIZERS["sgd"]()
    file = Path(directory) / f"{RANK}.pickle"
    params = make(0)
    state = tool.init(jax.tree_util.tree_map(jnp.asarray, params))
    saved = None
    if first:
        params, state, saved = pickle.loads(file.read_bytes())  # noqa: S301  # the test's own
    params = hk.distribute(params, policy=READY_MADE[policy]())
    if saved is not None and remembers:
        hk.load_state_dict(saved)

    @hk.gradients
    def gradients(params, batch):
        return hk.mean(jax.grad(loss_of)(params, batch))

    digests = []
    for step in range(first, LAST):
        updates, state = tool.update(gradients(params, batch(RANK, step)), state, params)
        params = optax.apply_updates(params, updates)
        digests.append(digest(params))
        if step + 1 == CHECKPOINT and not first:
            kept = jax.tree_util.tree_map(np.asarray, (params, state))
            file.write_bytes(pickle.dumps((*kept, hk.state_dict())))
    return digests


def restored():
    """What states are answered that are none, or come too late; and what JAX's arrays of one that fits."""
    said = {}
    hk.distribute(jnp.ones(3), policy=READY_MADE["top_k"]())
    state = hk.state_dict()

    def answered(name, given, **options):
        try:
            hk.load_state_dict(given, **options)
        except Error as error:
            said[name] = f"{type(error).__name__}: {error}"

    answered(
        "fits",
        jax.tree_util.tree_map(
            lambda each: jnp.asarray(each) if isinstance(each, np.ndarray) else each, state
        ),
    )
    answered("nothing", {"weights": 3})
    answered("without", {**state, "parameters": []})
    answered("anew", {**state, "parameters": []}, strict=False)
    jax.block_until_ready(hk.gradients(hk.mean)(jnp.ones(3)))
    answered("late", state)
    return said


def left_out():
    """A function that drops a mean, which XLA then never makes."""
    hk.distribute({"a": jnp.ones(3), "b": jnp.ones(3)})
    grads = {"a": jnp.ones(3), "b": jnp.ones(3)}
    step = hk.gradients(lambda grads: hk.mean(grads)["a"])
    try:
        for _ in range(2):
            jax.block_until_ready(step(grads))
    except (jax.errors.JaxRuntimeError, Error) as error:
        return str(error)
    return None


def in_a_loop():
    """A mean in a loop would be sent once for each round."""
    hk.distribute(jnp.ones(3))

    def looped(grads):
        return jax.lax.fori_loop(0, 3, lambda _, each: once(each), grads)

    def once(grads):
        return hk.mean(grads)

    try:
        jax.block_until_ready(hk.gradients(looped)(jnp.ones(3)))
    except jax.errors.JaxRuntimeError as error:
        return str(error)
    return None
