"""What ranks of the tests do with Keras, on the backend of `KERAS_BACKEND`: each function returns what the tests compare."""

import hashlib
import os
import signal
import time

import keras
import numpy as np

import hocket.keras as hk
from hocket.errors import Error

RANK, WORLD = int(os.environ.get("HOCKET_RANK", "0")), int(os.environ.get("HOCKET_WORLD", "1"))
JIT = keras.backend.backend() == "jax"
BATCH, STEPS, WIDTH = 4, 50, 12


def model_of(optimizer, seed, **options):
    """With a layer that is not trained, and statistics that are not averaged but start equal."""
    keras.utils.set_random_seed(seed)
    model = keras.Sequential(
        [
            keras.Input((WIDTH,)),
            keras.layers.Dense(32, "tanh"),
            keras.layers.Dense(32, "tanh", trainable=False),
            keras.layers.LayerNormalization(),
            keras.layers.Dense(5),
        ]
    )
    made = {
        "sgd": keras.optimizers.SGD(0.05, momentum=0.9),
        "adam": keras.optimizers.Adam(1e-2, epsilon=1e-4),
    }[optimizer]
    model.compile(made, "mse", **{"jit_compile": JIT, **options})
    return model


def data_of(rank):
    random = np.random.default_rng(100 + rank)
    x = random.normal(size=(STEPS * BATCH, WIDTH)).astype(np.float32)
    return x, np.tanh(x[:, :5])


def together():
    """The batches of all ranks, step by step."""
    return [
        np.concatenate(
            [
                data_of(rank)[part][step * BATCH : (step + 1) * BATCH]
                for step in range(STEPS)
                for rank in range(WORLD)
            ]
        )
        for part in range(2)
    ]


def digest(model):
    return hashlib.sha256(b"".join(each.tobytes() for each in model.get_weights())).hexdigest()


def train(optimizer, **options):
    """(digest of the weights, their distance from one process's on the batches of all ranks, logs of the epochs)."""
    # Rank 0's values count.
    model = hk.distribute(model_of(optimizer, RANK, **options))
    frozen = model.layers[1].get_weights()[0].copy()
    log = model.fit(
        *data_of(RANK), batch_size=BATCH, epochs=2, shuffle=False, verbose=0, callbacks=[hk.Metrics()]
    )
    assert np.array_equal(frozen, model.layers[1].get_weights()[0])
    one = model_of(optimizer, 0)
    own = one.fit(*together(), batch_size=BATCH * WORLD, epochs=2, shuffle=False, verbose=0)
    flat = [
        np.concatenate([each.ravel() for each in some.get_weights()]).astype(np.float64)
        for some in (model, one)
    ]
    distance = float(np.linalg.norm(flat[0] - flat[1]) / np.linalg.norm(flat[1]))
    return digest(model), distance, log.history["loss"], own.history["loss"]


def late():
    """What `distribute` answers to a promise that a backend cannot keep."""
    try:
        hk.distribute(model_of("sgd", 0), promise="delayed")
    except Error as error:
        return f"{type(error).__name__}: {error}"
    return None


def refused():
    """What each mistake is answered, and that training goes on after it."""
    said = {}

    def answered(name, call):
        try:
            call()
        except Error as error:
            said[name] = f"{type(error).__name__}: {error}"

    bare = keras.Sequential([keras.layers.Dense(3)])
    answered("not compiled", lambda: hk.distribute(bare))
    bare.compile("sgd", "mse")
    answered("not built", lambda: hk.distribute(bare))
    answered("the other way", lambda: hk.distribute(model_of("sgd", 0, jit_compile=not JIT)))
    model = hk.distribute(model_of("sgd", 0))
    answered("compiled again", lambda: model.compile("adam", "mse"))
    model.fit(*data_of(RANK), batch_size=BATCH, verbose=0)
    return said, digest(model)


def lost():
    """Rank 1 dies in the middle of an epoch: what the others are told."""
    model = hk.distribute(model_of("sgd", 0))

    class Dies(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 10 and RANK == 1:
                time.sleep(0.5)
                os.kill(os.getpid(), signal.SIGKILL)

    try:
        model.fit(*data_of(RANK), batch_size=BATCH, verbose=0, callbacks=[Dies()])
    except Exception as error:  # whatever the backend raises
        return f"{type(error).__name__}: {error}"
    return None
