"""Models of the tests in plain TensorFlow: a perceptron, a small transformer."""

import itertools

import numpy as np
import tensorflow as tf

BATCH, WORDS, LENGTH, WIDTH = 4, 17, 8, 16


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


class Perceptron(tf.Module):
    """Three layers, a scale that is a scalar, a counter that is not trained."""

    def __init__(self, seed):
        super().__init__()
        sizes = [12, 32, 32, 5]
        self.layers = [
            (
                tf.Variable(normal(seed + at, *pair) / pair[0] ** 0.5),
                tf.Variable(normal(seed + 10 + at, pair[1])),
            )
            for at, pair in enumerate(itertools.pairwise(sizes))
        ]
        self.scale = tf.Variable(1.5)
        self.count = tf.Variable(seed, trainable=False)

    def batch(self, rank, step):
        return normal(1000 * step + rank, BATCH, 12), normal(7 + 1000 * step + rank, BATCH, 5)

    def loss(self, x, target):
        for at, (weight, bias) in enumerate(self.layers):
            x = x @ weight + bias
            x = x if at == 2 else tf.tanh(x)
        return tf.reduce_mean((self.scale * x - target) ** 2)


class Transformer(tf.Module):
    """A block over an embedding, whose gradient is of rows."""

    def __init__(self, seed):
        super().__init__()
        self.embedding = tf.Variable(normal(seed + 99, WORDS, WIDTH))
        shapes = [(WIDTH, WIDTH)] * 4 + [(WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH), (WIDTH, WORDS)]
        self.weights_of = [
            tf.Variable(normal(seed + at, *shape) / shape[0] ** 0.5) for at, shape in enumerate(shapes)
        ]
        self.scale = tf.Variable(np.ones(WIDTH, np.float32))

    def batch(self, rank, step):
        words = np.random.default_rng(1000 * step + rank).integers(0, WORDS, (BATCH, LENGTH + 1))
        return words[:, :-1], words[:, 1:]

    def loss(self, words, nexts):
        query, key, value, out, up, down, last = self.weights_of
        x = tf.gather(self.embedding, words)

        def flat(x, weight):
            return tf.tensordot(x, weight, 1)

        scores = tf.matmul(flat(x, query), flat(x, key), transpose_b=True) / WIDTH**0.5
        seen = tf.linalg.band_part(tf.ones((LENGTH, LENGTH)), -1, 0)
        scores = tf.nn.softmax(scores + (1 - seen) * -1e9)
        x = x + flat(tf.matmul(scores, flat(x, value)), out)
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        x = x + flat(tf.nn.gelu(flat(self.scale * (x - mean) / tf.sqrt(variance + 1e-5), up)), down)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(nexts, flat(x, last)))


MODELS = {"perceptron": Perceptron, "transformer": Transformer}


class Momentum:
    def __init__(self, variables):
        self.variables = variables
        self.moves = [tf.Variable(tf.zeros_like(each), trainable=False) for each in variables]

    def apply(self, gradients):
        for variable, move, gradient in zip(self.variables, self.moves, gradients, strict=True):
            move.assign(0.9 * move + gradient)
            variable.assign_sub(0.05 * move)


class Adam:
    def __init__(self, variables):
        self.variables = variables
        self.moments = [
            [tf.Variable(tf.zeros_like(each), trainable=False) for each in variables] for _ in range(2)
        ]

    def apply(self, gradients):
        for variable, first, second, gradient in zip(self.variables, *self.moments, gradients, strict=True):
            first.assign(0.9 * first + 0.1 * gradient)
            second.assign(0.999 * second + 0.001 * gradient**2)
            variable.assign_sub(0.001 * first / (tf.sqrt(second) + 1e-3))


OPTIMIZERS = {"sgd": Momentum, "adam": Adam}
