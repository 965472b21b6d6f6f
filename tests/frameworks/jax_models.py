"""Models and optimizers of the tests in plain JAX: a perceptron, a small transformer."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax

BATCH, WORDS, LENGTH, WIDTH, HEADS = 4, 17, 8, 16, 2
OPTIMIZERS = {"sgd": lambda: optax.sgd(0.05, momentum=0.9), "adam": lambda: optax.adam(1e-2)}


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


def perceptron(seed):
    """Three layers, and a scale that is a scalar."""
    sizes = [12, 32, 32, 5]
    layers = [
        {"weight": normal(seed + at, *pair) / pair[0] ** 0.5, "bias": normal(seed + 10 + at, pair[1])}
        for at, pair in enumerate(itertools.pairwise(sizes))
    ]
    return {"layers": layers, "scale": np.float64(1.5)}


def perceptron_batch(rank, step):
    return normal(1000 * step + rank, BATCH, 12), normal(7 + 1000 * step + rank, BATCH, 5)


def perceptron_loss(params, batch):
    x, target = batch
    for at, layer in enumerate(params["layers"]):
        x = x @ layer["weight"] + layer["bias"]
        x = x if at == 2 else jnp.tanh(x)
    return jnp.mean((params["scale"] * x - target) ** 2)


def transformer(seed):
    """Two blocks over an embedding that is also the last layer."""

    def block(at):
        names = ["query", "key", "value", "out", "up", "down"]
        shapes = [(WIDTH, WIDTH)] * 4 + [(WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH)]
        own = {
            name: normal(seed + 20 * at + i, *shape) / shape[0] ** 0.5
            for i, (name, shape) in enumerate(zip(names, shapes, strict=True))
        }
        return {**own, "first": np.ones(WIDTH), "second": np.ones(WIDTH)}

    return {"embedding": normal(seed + 99, WORDS, WIDTH), "blocks": [block(1), block(2)]}


def transformer_batch(rank, step):
    words = np.random.default_rng(1000 * step + rank).integers(0, WORDS, (BATCH, LENGTH + 1))
    return words[:, :-1], words[:, 1:]


def transformer_loss(params, batch):
    words, nexts = batch
    x = params["embedding"][words]

    def normed(x, scale):
        return scale * (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)

    seen = jnp.tril(jnp.ones((LENGTH, LENGTH), bool))
    for block in params["blocks"]:
        y = normed(x, block["first"])
        query, key, value = (
            (y @ block[name]).reshape(*y.shape[:2], HEADS, WIDTH // HEADS)
            for name in ("query", "key", "value")
        )
        weights = jnp.einsum("bqhc,bkhc->bhqk", query, key) / (WIDTH // HEADS) ** 0.5
        weights = jax.nn.softmax(jnp.where(seen, weights, -1e9))
        x = x + jnp.einsum("bhqk,bkhc->bqhc", weights, value).reshape(x.shape) @ block["out"]
        x = x + jax.nn.gelu(normed(x, block["second"]) @ block["up"]) @ block["down"]
    likelihoods = jax.nn.log_softmax(x @ params["embedding"].T)
    return -jnp.take_along_axis(likelihoods, nexts[..., None], -1).mean()


MODELS = {
    "perceptron": (perceptron, perceptron_batch, perceptron_loss),
    "transformer": (transformer, transformer_batch, transformer_loss),
}
