"""Kubernetes and Kubeflow: a ConfigMap with the rank of each node, which a pod looks up by its node.

Controllers that create pods (an indexed Job, a StatefulSet, Kubeflow's PyTorchJob) number pods before placement, so the number is
independent of the network. The node's name does, and a pod can get its node's name from `fieldRef: {fieldPath:
spec.nodeName}`,
https://kubernetes.io/docs/concepts/workloads/pods/downward-api/. Names of nodes are valid keys of a ConfigMap,
https://kubernetes.io/docs/concepts/configuration/configmap/.
"""

from __future__ import annotations

import json

from hocket.tools.ordering.handover.layout import Layout

HEAD = """\
# The rank of each node. Mount it, for example at /etc/hocket-order, give each pod the name of its node,
#   env: [{name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]
# and start with NODE_RANK="$(cat /etc/hocket-order/$NODE_NAME)".
apiVersion: v1
kind: ConfigMap
metadata:
  name: hocket-order
data:
"""


def text(layout: Layout) -> str:
    """The manifest.

    >>> text(Layout((("b", 1), ("a", 1)))).splitlines()[-2:]
    ['  "b": "0"', '  "a": "1"']
    """
    # JSON strings are YAML strings.
    entries = (
        f"  {json.dumps(host)}: {json.dumps(str(rank))}\n" for rank, (host, _) in enumerate(layout.hosts)
    )
    return HEAD + "".join(entries)
