"""Manifests of Kubernetes as processes: pods on hosts of a testbed, with what the controllers and the cluster's DNS give them.

It does what Kubernetes documents of an Indexed Job (https://kubernetes.io/docs/concepts/workloads/controllers/job/) and of headless
services (https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/), and Kubeflow of its torch runtime, and no more.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from hocket.artefacts import cluster as artefact
from hocket.errors import TestbedError
from hocket.tools.testbed import Testbed
from tests.launch.processes import clean_environment, plain

INDEX = "batch.kubernetes.io/job-completion-index"
SECRET = re.compile(r"kubectl create secret generic (\S+) --from-literal=(\w+)=")
SECRET_VALUE = "5e" * 32
PORT_OF_TRAINER = "29400"
RESOLVE = 'mount --bind "$0" /etc/hosts && exec "$@"'
"""A process that sees another `/etc/hosts`, which stands for the cluster's DNS."""

Manifest = dict[str, Any]


def manifests(path: Path) -> list[Manifest]:
    return [each for each in yaml.safe_load_all(path.read_text()) if each is not None]


def of_kind(path: Path, kind: str) -> list[Manifest]:
    return [each for each in manifests(path) if each["kind"] == kind]


@dataclass
class Pod:
    """`labels` and `field`s are what the cluster knows of it."""

    name: str
    host: str
    container: Manifest
    labels: dict[str, str]
    spec: Manifest
    given: dict[str, str] = field(default_factory=dict)


def pods_of(job: Manifest, hosts: Sequence[str]) -> list[Pod]:
    """The pods that the controller of an (Indexed) Job makes, one a host."""
    name, spec = job["metadata"]["name"], job["spec"]
    template = spec["template"]
    labels = {**template.get("metadata", {}).get("labels", {}), "job-name": name}
    labels["batch.kubernetes.io/job-name"] = name
    (container,) = template["spec"]["containers"]
    if spec.get("completionMode") != "Indexed":
        return [Pod(f"{name}-x7k2p", hosts[0], container, labels, template["spec"])]
    assert spec["completions"] == spec["parallelism"], "some ranks would wait for others to end"
    return [
        Pod(
            f"{name}-{index}",
            hosts[index],
            container,
            {**labels, INDEX: str(index)},
            template["spec"],
            {"JOB_COMPLETION_INDEX": str(index)},
        )
        for index in range(spec["completions"])
    ]


def pods_of_trainer(job: Manifest, hosts: Sequence[str]) -> list[Pod]:
    """The pods that Kubeflow's controller makes of a TrainJob, by its torch runtime and JobSet."""
    name, trainer = job["metadata"]["name"], job["spec"]["trainer"]
    count = trainer["numNodes"]
    return [
        Pod(
            f"{name}-node-0-{index}",
            hosts[index],
            trainer,
            {INDEX: str(index)},
            {"subdomain": name},
            {
                "PET_NNODES": str(count),
                "PET_NPROC_PER_NODE": str(trainer["numProcPerNode"]),
                "PET_NODE_RANK": str(index),
                "PET_MASTER_ADDR": f"{name}-node-0-0.{name}",
                "PET_MASTER_PORT": PORT_OF_TRAINER,
                "JOB_COMPLETION_INDEX": str(index),
            },
        )
        for index in range(count)
    ]


@contextmanager
def nodes(names: Sequence[str]) -> Iterator[Testbed]:
    """Hosts of a testbed, on which a process may see another `/etc/hosts`; the test is skipped where there can be none."""
    hosts = tuple(artefact.Host(name=name, rack="x", bandwidth_bit_per_s=1e9) for name in names)
    with ExitStack() as ends:
        try:
            bed = ends.enter_context(Testbed(artefact.Cluster(hosts=hosts, racks=(artefact.Rack(name="x"),))))
        except TestbedError as error:
            pytest.skip(f"no namespaces here: {error}")
        can = [*bed.command(names[0]), "unshare", "--mount", "mount", "--bind", "/etc/hosts", "/etc/hosts"]
        if subprocess.run(can, capture_output=True, check=False, timeout=60).returncode:
            pytest.skip("no file can be mounted over another here")
        yield bed


class Cluster:
    """Pods of one file on a testbed, whose hosts are the nodes. `volumes`: directories of claims, by name."""

    def __init__(self, bed: Testbed, path: Path, pods: Sequence[Pod], folder: Path) -> None:
        self.bed, self.pods, self.folder = bed, pods, folder
        self._secrets = dict.fromkeys(SECRET.findall(path.read_text()), SECRET_VALUE)
        services = of_kind(path, "Service")
        names = ["127.0.0.1 localhost"]
        for service in services:
            own, selector = service["metadata"]["name"], service["spec"]["selector"]
            assert service["spec"]["clusterIP"] == "None"
            assert service["spec"]["publishNotReadyAddresses"]
            chosen = [pod for pod in pods if selector.items() <= pod.labels.items()]
            assert chosen, f"service {own} selects no pod"
            names += [f"{bed.address(pod.host)} {own}" for pod in chosen]
            names += [
                f"{bed.address(pod.host)} {pod.name}.{own}"
                for pod in chosen
                if pod.spec.get("subdomain") == own
            ]
        # JobSet makes the service of a TrainJob.
        names += [
            f"{bed.address(pod.host)} {pod.name}.{pod.spec['subdomain']}"
            for pod in pods
            if not services and "subdomain" in pod.spec
        ]
        self._hosts = folder / "hosts"
        self._hosts.write_text("\n".join(names) + "\n")

    def start(self, pod: Pod, script: Path, *arguments: str) -> subprocess.Popen[bytes]:
        """The container of a pod, whose image has the script as `train.py`."""
        argv = [*pod.container["command"], *pod.container.get("args", ())]
        mounts = {each["name"]: each["mountPath"] for each in pod.container.get("volumeMounts", ())}
        for volume in pod.spec.get("volumes", ()):
            if claim := volume.get("persistentVolumeClaim"):
                directory = self.folder / claim["claimName"]
                directory.mkdir(exist_ok=True)
                argv = [word.replace(mounts[volume["name"]], str(directory)) for word in argv]
        command = self.bed.command(
            pod.host,
            [
                "unshare",
                "--mount",
                "sh",
                "-c",
                RESOLVE,
                str(self._hosts),
                *_programs(argv, script, arguments),
            ],
        )
        with (self.folder / f"{pod.name}.log").open("ab") as log:
            return subprocess.Popen(
                command, env=self.environment(pod), stdout=log, stderr=log, start_new_session=True
            )

    def environment(self, pod: Pod) -> dict[str, str]:
        """Variables that the container finds, by its `env`."""
        found = dict(pod.given)
        for each in pod.container.get("env", ()):
            found[each["name"]] = each["value"] if "value" in each else self._valued(each["valueFrom"], pod)
        # Debuggers aside, that is all: the image has hocket installed, here it is on the path.
        return clean_environment(
            PYTHONPATH=":".join(sys.path), OMP_NUM_THREADS="1", TMPDIR=str(self.folder), **found
        )

    def _valued(self, source: Manifest, pod: Pod) -> str:
        if "secretKeyRef" in source:
            return self._secrets[source["secretKeyRef"]["name"], source["secretKeyRef"]["key"]]
        path = source["fieldRef"]["fieldPath"]
        return (
            pod.host if path == "spec.nodeName" else pod.labels[path[len("metadata.labels['") : -len("']")]]
        )

    def log(self) -> str:
        return "\n".join(f"{each.name}:\n{each.read_text()}" for each in sorted(self.folder.glob("*.log")))


def _programs(argv: Sequence[str], script: Path, arguments: Sequence[str]) -> list[str]:
    if argv[0] == "hocket":
        return plain(*argv[1:])
    program = {"python": [], "torchrun": ["-m", "torch.distributed.run"]}[argv[0]]
    assert argv[1:] == ["train.py"]
    return [sys.executable, *program, str(script), *arguments]


def after_failure(job: Manifest, code: int, *conditions: str) -> str:
    """Response of the controller to a pod that ended: an action of `podFailurePolicy`, or `Count`."""
    for rule in job["spec"].get("podFailurePolicy", {"rules": []})["rules"]:
        if any(each["type"] in conditions for each in rule.get("onPodConditions", ())):
            return rule["action"]
        codes = rule.get("onExitCodes")
        if codes and (code in codes["values"]) == (codes["operator"] == "In"):
            return rule["action"]
    return "Count"
