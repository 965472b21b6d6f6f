"""Two hosts with one name, as containers and cloud images have it, under torchrun itself: namespaces of one machine."""

import subprocess

import pytest

from hocket.artefacts.cluster import Cluster, Host
from tests.support import warm

TRAIN = """
import os, socket, sys
import torch
import torch.distributed as dist
import hocket.torch as hk

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
if sys.argv[1] == "distribute":
    model, optimizer = hk.distribute(model, optimizer)
else:
    dist.init_process_group("hocket")
    model = torch.nn.parallel.DistributedDataParallel(model)
torch.manual_seed(rank)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(16, 8)).square().mean().backward()
    optimizer.step()
total = float(sum(each.detach().double().sum() for each in model.parameters()))
if sys.argv[1] == "distribute":
    from hocket.training.process import _joined
    hosts = _joined.job.hosts
else:
    from hocket.torch.backend import configured
    hosts = next(iter(configured.open_groups)).node.job.hosts
    dist.destroy_process_group()
assert socket.gethostname() == sys.argv[2]
sys.stdout.write(f"rank {rank}: {total:.12f} {list(hosts)}\\n")
"""


@pytest.mark.parametrize("how", ["distribute", "ddp"])
def test_hosts_with_one_name_train(how, emulated, tmp_path):
    """Python would take them for one host, and Rust for two: an error about `in_place` in the first step, or a hang."""
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    name = subprocess.run(["hostname"], capture_output=True, text=True, check=True).stdout.strip()
    hosts = tuple(Host(name=each, bandwidth_bit_per_s=1e9) for each in "ab")
    with emulated(Cluster(hosts=hosts)) as bed:
        agents = [
            subprocess.Popen(
                bed.command(
                    host.name,
                    warm.torchrun(
                        [
                            *("--nnodes=2", "--nproc-per-node=2", f"--node-rank={node}"),
                            *(f"--master-addr={bed.address('a')}", "--master-port=29511"),
                        ],
                        script,
                        how,
                        name,
                    ),
                ),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for node, host in enumerate(hosts)
        ]
        try:
            said = [agent.communicate(timeout=180)[0] for agent in agents]
        finally:
            for agent in agents:
                agent.kill()
                agent.wait()
    assert [agent.returncode for agent in agents] == [0, 0], said
    lines = [line for text in said for line in text.splitlines() if line.startswith("rank ")]
    assert len(lines) == 4, said
    assert len({line.partition(": ")[2] for line in lines}) == 1, lines
    assert f"['{name}', '{name}', '{name}-2', '{name}-2']" in lines[0]
