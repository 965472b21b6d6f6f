"""How much of a step's bytes leaves before its last gradient is made, from the trace."""

import sys

import numpy as np
import pytest

from hocket.artefacts import trace
from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.artefacts.trace import Kind
from hocket.demo.emulation import open_emulation, ranks, run_ranks
from hocket.settings import Settings

WORLD, RATE_BIT_PER_S = 2, 1e9

SCRIPT = """
import jax, jax.numpy as jnp, numpy as np
import hocket.jax as hk
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import AllReduce
from hocket.planning.buckets import buckets, plan_of

WIDTH, LAYERS, BATCH = 768, 8, 96
random = np.random.default_rng(0)
layers = [(random.normal(size=(WIDTH, WIDTH)) / WIDTH**0.5).astype(np.float32) for _ in range(LAYERS)]
# A bucket for each layer: the default plan would send all but one as one.
each = [[Gradient(str(at), (WIDTH, WIDTH), "f32")] for at in range(LAYERS)][::-1]
params = hk.distribute(layers, plan=plan_of(buckets(each, AllReduce(algorithm="ring"), (0, 1)), 2, label="layers"))


def loss(params, x):
    for each in params:
        x = jnp.tanh(x @ each)
    return jnp.mean(x**2)


gradients = hk.gradients(lambda params, x: hk.mean(jax.grad(loss)(params, x)))
update = jax.jit(lambda params, grads: [p - 0.01 * g for p, g in zip(params, grads)], donate_argnums=0)
x = np.random.default_rng(hk.rank()).normal(size=(BATCH, WIDTH)).astype(np.float32)
for step in range(12):
    params = jax.block_until_ready(update(params, gradients(params, x)))
"""


def share_before_the_last_gradient(found, rank):
    """Of the bytes of all but the first steps."""
    records = found.records(rank)
    buckets = [each.program for each in found.run.programs if each.bucket is not None]
    sends = records[(records["kind"] == Kind.SEND) & np.isin(records["program"], buckets)]
    spans = {
        kind: {each["instance"]: each for each in records[records["kind"] == kind]}
        for kind in (Kind.BACKWARD, Kind.WAIT)
    }
    early = whole = 0.0
    for turn, wait in spans[Kind.WAIT].items():
        if turn < 4:
            continue
        given_ns = wait["start_ns"]
        own = sends[
            (sends["start_ns"] >= spans[Kind.BACKWARD][turn]["start_ns"])
            & (sends["end_ns"] <= wait["end_ns"])
        ]
        for each in own:
            took_ns = max(1, each["end_ns"] - each["start_ns"])
            before = min(max(0.0, (float(given_ns) - each["start_ns"]) / took_ns), 1.0)
            early += before * each["bytes"]
            whole += each["bytes"]
    return early / whole


@pytest.mark.timing
def test_gradients_leave_while_backward_computes(tmp_path):
    """Communication would begin when computation ends, as without Hocket."""
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    cluster = Cluster(
        hosts=tuple(Host(name=f"h{at}", rack="r", bandwidth_bit_per_s=RATE_BIT_PER_S) for at in range(WORLD)),
        racks=(Rack(name="r"),),
    )
    settings = Settings(trace=str(tmp_path / "trace"), timeout_s=60, start_timeout_s=60)
    (tmp_path / "trace").mkdir()
    with open_emulation(cluster) as emulation:
        slots = [host.name for host in cluster.hosts]
        run_ranks(emulation, slots[0], ranks(emulation, slots, [sys.executable, str(script)]), settings)
    found = trace.read(tmp_path / "trace")
    shares = [share_before_the_last_gradient(found, rank) for rank in range(WORLD)]
    assert min(shares) >= 0.6, shares
