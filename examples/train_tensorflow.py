"""Training with TensorFlow: run it with `hocket run -n 2 examples/train_tensorflow.py`, or alone.

What Hocket needs: `distribute`, and `mean` between the tape and the optimizer.
"""

import numpy as np
import tensorflow as tf

import hocket.tensorflow as hk

STEPS, BATCH, WIDTH, RATE = 100, 32, 64, 0.1


def batch_of(rank, step):
    """Another one on each rank."""
    x = np.random.default_rng([rank, step]).normal(size=(BATCH, WIDTH)).astype(np.float32)
    return tf.constant(x), tf.constant(np.sin(x))


weights = [tf.Variable(tf.random.normal((WIDTH, WIDTH)) / WIDTH**0.5) for _ in range(3)]
hk.distribute(weights)


@tf.function
def step_of(x, target):
    """The loss of this rank; the variables move by the means of all ranks' gradients."""
    with tf.GradientTape() as tape:
        for weight in weights:
            x = tf.tanh(x @ weight)
        loss = tf.reduce_mean((x - target) ** 2)
    for weight, grad in zip(weights, hk.mean(tape.gradient(loss, weights)), strict=True):
        weight.assign_sub(RATE * grad)
    return loss


for step in range(STEPS):
    loss = step_of(*batch_of(hk.rank(), step))
    if step % 20 == 0 and hk.rank() == 0:
        print(f"step {step}: loss {float(loss):.4f}")

checksum = sum(float(tf.reduce_sum(tf.abs(each))) for each in weights)
print(f"rank {hk.rank()} of {hk.world()}: {checksum:.6f}")
