"""Training with Keras 3: run it with `hocket run -n 2 examples/train_keras.py`, or alone.

`KERAS_BACKEND` chooses between TensorFlow and JAX. What Hocket needs: `distribute` after `compile`, and data of its own for each
rank.
"""

import keras
import numpy as np

import hocket.keras as hk

SAMPLES, BATCH, WIDTH = 640, 32, 64

model = keras.Sequential(
    [keras.Input((WIDTH,)), *(keras.layers.Dense(WIDTH, "tanh") for _ in range(3)), keras.layers.Dense(WIDTH)]
)
model.compile(keras.optimizers.Adam(3e-3), "mse", jit_compile=keras.backend.backend() == "jax")
hk.distribute(model)

inputs = np.random.default_rng(hk.rank()).normal(size=(SAMPLES, WIDTH)).astype(np.float32)
log = model.fit(inputs, np.sin(inputs), batch_size=BATCH, epochs=5, verbose=0, callbacks=[hk.Metrics()])
if hk.rank() == 0:
    print("losses:", *(f"{loss:.4f}" for loss in log.history["loss"]))
checksum = sum(float(np.abs(each).sum()) for each in model.get_weights())
print(f"rank {hk.rank()} of {hk.world()}: {checksum:.6f}")
