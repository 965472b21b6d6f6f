"""What ranks of the tests do with TensorFlow: each function returns what the tests compare."""

import hashlib
import os
import pickle
import signal
import time
import warnings
from pathlib import Path

import numpy as np
import tensorflow as tf

import hocket.tensorflow as hk
from hocket.errors import Error
from hocket.policies import READY_MADE
from tests.frameworks import policies
from tests.frameworks.policies import SHAPES, drawn
from tests.frameworks.tensorflow_models import MODELS, OPTIMIZERS

RANK, WORLD = int(os.environ.get("HOCKET_RANK", "0")), int(os.environ.get("HOCKET_WORLD", "1"))
STEPS = 50


def digest(variables):
    return hashlib.sha256(b"".join(each.numpy().tobytes() for each in variables)).hexdigest()


def train(model, optimizer, form, steps=STEPS):
    """(digest of the variables after each step, their distance from one process's on the batches of all ranks)."""
    # Rank 0's values count.
    net = hk.distribute(MODELS[model](RANK))
    variables = net.trainable_variables
    tool = OPTIMIZERS[optimizer](variables)

    def with_mean(x, y):
        with tf.GradientTape() as tape:
            loss = net.loss(x, y)
        tool.apply(hk.mean(tape.gradient(loss, variables)))

    def with_tape(x, y):
        with hk.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = net.loss(x, y)
        # In another order than they were distributed.
        backwards = list(reversed(variables))
        tool.apply(list(reversed(tape.gradient(loss, backwards))))

    step_of = {"eager": with_mean, "function": tf.function(with_mean), "tape": tf.function(with_tape)}[form]
    digests = []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"the gradient of .* is of some rows")
        for step in range(steps):
            step_of(*map(tf.constant, net.batch(RANK, step)))
            digests.append(digest(net.variables))
    return digests, distance(variables, alone(model, optimizer, steps))


def alone(model, optimizer, steps):
    """One process on the batches of all ranks, without Hocket."""
    net = MODELS[model](0)
    variables = net.trainable_variables
    tool = OPTIMIZERS[optimizer](variables)

    @tf.function
    def step_of(x, y):
        with tf.GradientTape() as tape:
            loss = net.loss(x, y)
        tool.apply([tf.convert_to_tensor(each) for each in tape.gradient(loss, variables)])

    for step in range(steps):
        each = [net.batch(rank, step) for rank in range(WORLD)]
        step_of(*(tf.constant(np.concatenate(parts)) for parts in zip(*each, strict=True)))
    return variables


def distance(one, other):
    flat = [
        np.concatenate([each.numpy().astype(np.float64).ravel() for each in some]) for some in (one, other)
    ]
    return float(np.linalg.norm(flat[0] - flat[1]) / np.linalg.norm(flat[1]))


def dtypes():
    """Means of small integers are exact in every type; variables that do not travel become rank 0's."""
    names = ["float64", "float32", "float16", "bfloat16"]
    trained = {name: tf.Variable(tf.zeros((3, 5), name)) for name in names}
    trained["scalar"] = tf.Variable(0.0)
    other = {
        "count": tf.Variable(np.arange(3) + RANK),
        "frozen": tf.Variable(1.0 + RANK, trainable=False),
        "flag": tf.Variable(RANK == 0),
        "none": tf.Variable(tf.zeros((0, 4))),
    }
    hk.distribute([trained, other])
    grads = {name: tf.cast(tf.fill(each.shape, 2 * RANK + 1), each.dtype) for name, each in trained.items()}
    means = hk.mean(grads)
    again = tf.function(hk.mean)(grads)
    shown = [
        {
            name: [each.dtype.name, tf.cast(each, tf.float64).numpy().ravel().tolist()]
            for name, each in some.items()
        }
        for some in (means, again)
    ]
    return shown, {name: each.numpy().tolist() for name, each in other.items()}


def in_a_loop(steps):
    """Several means in one execution, as Keras' steps_per_execution makes them: what differs from the right ones."""
    variables = [tf.Variable(tf.zeros(size)) for size in (5, 60, 700)]
    hk.distribute(variables)

    @tf.function
    def looped():
        wrong = tf.constant(0)
        for step in tf.range(steps):
            given = [
                tf.fill(each.shape, tf.cast(step + at + RANK, tf.float32))
                for at, each in enumerate(variables)
            ]
            for at, each in enumerate(hk.mean(given)):
                right = tf.cast(step + at, tf.float32) + (WORLD - 1) / 2
                wrong += tf.cast(tf.reduce_any(each != right), tf.int32)
        return wrong

    def twice(values):
        return hk.mean(values), hk.mean([2 * each for each in values])

    once, double = tf.function(twice)([tf.fill(each.shape, float(RANK)) for each in variables])
    return int(looped()), [float(each[0]) for each in [*once, *double]]


def few_threads(steps):
    """Many variables, two threads of TensorFlow's, gradients that come in another order on each rank."""
    tf.config.threading.set_inter_op_parallelism_threads(2)
    variables = [tf.Variable(tf.zeros(40 + at)) for at in range(12)]
    hk.distribute(variables)

    @tf.function
    def means(values, rounds):
        def slow(value, count):
            spent = tf.while_loop(
                lambda at, _: at < count,
                lambda at, each: (at + 1, tf.tanh(each @ each)),
                (0, tf.fill((24, 24), 1e-3)),
            )[1]
            return value + 0 * spent[0, 0]

        return hk.mean([slow(value, rounds[at]) for at, value in enumerate(values)])

    random = np.random.default_rng(RANK)
    wrong = []
    for step in range(steps):
        values = [tf.fill(each.shape, float(8 * step + at + RANK)) for at, each in enumerate(variables)]
        found = means(values, tf.constant(random.integers(0, 60, len(variables)), tf.int32))
        right = [8 * step + at + (WORLD - 1) / 2 for at in range(len(variables))]
        wrong += [
            [step, at] for at, each in enumerate(found) if not np.all(each.numpy() == np.float32(right[at]))
        ]
    return wrong


def lost(how, form):
    """Rank 1 ends in the middle of training: how soon the others notice, by which exceptions, and what they say."""
    variables = [tf.Variable(tf.zeros((500, 500))), tf.Variable(tf.zeros(500))]
    hk.distribute(variables)

    def means():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((tf.ones((4, 500)) @ variables[0] + variables[1]) ** 2)
        return hk.mean(tape.gradient(loss, variables))

    if form == "function":
        means = tf.function(means)
    for _ in range(3):
        means()
    if RANK == 1:
        time.sleep(0.5)
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError("enough")
    said = []
    began_s = time.monotonic()
    for _ in range(2):
        try:
            means()
        except tf.errors.OpError as error:
            said.append([time.monotonic() - began_s - 0.5, type(error).__name__, str(error)])
    return said


def refused():
    """What each mistake is answered, and that training goes on after it."""
    said = {}

    def answered(name, call):
        try:
            call()
        except (Error, tf.errors.OpError) as error:
            # TensorFlow adds the names of its ops, which count up: another rank's need not be the same.
            said[name] = f"{type(error).__name__}: {error}".partition("\n\t")[0]

    ones = tf.ones(3)
    answered("nothing is distributed", lambda: hk.mean([ones]))
    answered("complex", lambda: hk.distribute([tf.Variable(tf.complex(ones, ones))]))
    answered("nothing", lambda: hk.distribute([tf.Variable([1, 2])]))
    answered("text", lambda: hk.distribute([tf.Variable(ones), tf.Variable("net")]))
    answered("tensor", lambda: hk.distribute([ones]))
    answered("shape", lambda: hk.distribute([tf.Variable(ones, shape=tf.TensorShape(None))]))
    answered("in a graph", tf.function(lambda: hk.distribute([tf.Variable(ones)])))

    a, b = tf.Variable(ones, name="a"), tf.Variable(tf.ones((2, 2)), name="b")
    answered("twice", lambda: hk.distribute([a, a]))
    other = tf.Variable(ones, name="other")

    def under_a_strategy():
        with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
            hk.distribute([a])

    answered("strategy", under_a_strategy)
    hk.distribute([a, b])
    grads = [ones, tf.ones((2, 2))]
    answered("too few", lambda: hk.mean(grads[:1]))
    answered("another order", lambda: hk.mean(grads[::-1]))
    answered("another type", lambda: hk.mean([ones, tf.ones((2, 2), tf.float64)]))
    answered("none", lambda: hk.mean([ones, None]))

    def taped(variables):
        with hk.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = tf.reduce_sum(a) + tf.reduce_sum(other)
        return tape.gradient(loss, variables)

    answered("another variable", lambda: taped([a, other]))
    answered("a part", lambda: taped([a]))

    @tf.function
    def differentiated():
        with tf.GradientTape() as tape:
            loss = sum(tf.reduce_sum(each) for each in hk.mean([a.value(), b.value()]))
        return tape.gradient(loss, a)

    answered("differentiated", differentiated)
    answered("compiled", lambda: tf.function(hk.mean, jit_compile=True)(grads))
    return said, [float(tf.reduce_sum(each)) for each in hk.mean([(RANK + 1) * each for each in grads])]


def distributed_anew():
    """A function of the variables before is refused; a new one trains the new ones, whatever was compiled."""
    hk.distribute([tf.Variable(tf.ones(3))])
    kept = tf.function(hk.mean)
    first = [each.numpy().tolist() for each in kept([tf.fill([3], RANK + 1.0)])]
    hk.distribute([tf.Variable(tf.ones(4))])
    try:
        kept([tf.fill([3], RANK + 1.0)])
    except tf.errors.FailedPreconditionError as error:
        said = str(error)
    return first, said, hk.mean([tf.fill([4], RANK + 2.0)])[0].numpy().tolist()


def differ():
    """Rank 1 has another shape."""
    hk.distribute([tf.Variable(tf.ones((3, 4 + RANK)), name="w")])


def several_devices():
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    hk.distribute([tf.Variable(tf.ones(3))])


def late():
    """Rank 1 never calls."""
    hk.distribute([tf.Variable(tf.ones(3), name="w")])
    if RANK == 1:
        time.sleep(8)
        return None
    try:
        hk.mean([tf.ones(3)])
    except tf.errors.OpError as error:
        return f"{type(error).__name__}: {error}"
    return None


def by_policy(name):
    """Bits of the results of some steps, by a policy."""
    hk.distribute(
        {each: tf.Variable(tf.zeros(shape), name=each) for each, shape in SHAPES.items()},
        policy=READY_MADE[name](),
    )
    mean = tf.function(hk.mean)
    under_tensorflow = []
    for step in range(5):
        means = mean({each: tf.constant(own) for each, own in drawn(step).items()})
        under_tensorflow.append(policies.digest([means[each].numpy() for each in SHAPES]))
    return under_tensorflow


CHECKPOINT, LAST = 6, 12
"""Steps after which a training is saved, and ends."""


def goes_on(policy, directory, first, remembers=True):
    """Bits of the means of each step of a training that stops after some, or goes on from there."""
    hk.distribute(
        [tf.Variable(tf.zeros(shape), name=each) for each, shape in SHAPES.items()],
        policy=READY_MADE[policy](),
    )
    file = Path(directory) / f"{RANK}.pickle"
    if first and remembers:
        hk.load_state_dict(pickle.loads(file.read_bytes()))  # noqa: S301  # it wrote the file
    mean = tf.function(hk.mean)
    seen = []
    for step in range(first, LAST):
        if step == CHECKPOINT and not first:
            file.write_bytes(pickle.dumps(hk.state_dict()))
        means = mean([tf.constant(own) for own in drawn(step).values()])
        seen.append(policies.digest([each.numpy() for each in means]))
    return seen
