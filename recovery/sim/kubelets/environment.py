"""The environment variables of a container, as a kubelet builds them.

Source: Kubernetes 1.36 `pkg/kubelet/kubelet_pods.go` (makeEnvironmentVariables, podFieldSelectorRuntimeValue),
`third_party/forked/golang/expansion`, `pkg/fieldpath`. Left out: the variables of Services. Values from ConfigMaps,
Secrets, files and resources are empty here.
"""

import re
from collections.abc import Mapping

from recovery.sim.kubelets.objects import Pod, PodContainer

_REFERENCE = re.compile(r"\$(?:(?P<dollar>\$)|\((?P<name>[^)]*)\))")
_SUBSCRIPT = re.compile(r"metadata\.(?P<field>labels|annotations)\['(?P<key>[^']+)'\]")


def environment(pod: Pod, container: PodContainer, *, node: str, pod_ip: str, host_ip: str) -> dict[str, str]:
    """The variables in the order of the spec. A value may use earlier variables. A later duplicate name wins."""
    found: dict[str, str] = {}
    fields = {
        "metadata.name": pod.name,
        "metadata.namespace": pod.metadata.namespace,
        "metadata.uid": pod.uid,
        "spec.nodeName": node,
        "spec.serviceAccountName": pod.spec.service_account_name,
        "status.podIP": pod_ip,
        "status.podIPs": pod_ip,
        "status.hostIP": host_ip,
        "status.hostIPs": host_ip,
    }
    for variable in container.env:
        source = variable.value_from
        if source is None:
            found[variable.name] = _expanded(variable.value, found)
        elif source.field_ref is not None:
            found[variable.name] = _field(pod, source.field_ref.field_path, fields)
        else:
            found[variable.name] = ""
    return found


def _expanded(text: str, known: Mapping[str, str]) -> str:
    """The text with `$(NAME)` expanded. An unknown variable stays as it is, and `$$` becomes `$`."""
    if "$" not in text:
        return text
    return _REFERENCE.sub(lambda found: "$" if found["dollar"] else known.get(found["name"], found[0]), text)


def _field(pod: Pod, path: str, fields: Mapping[str, str]) -> str:
    """The value of a `fieldRef`. A missing label or annotation is empty."""
    subscript = _SUBSCRIPT.fullmatch(path)
    if subscript is None:
        return fields[path]  # the API server accepts no other path
    values = pod.metadata.labels if subscript["field"] == "labels" else pod.metadata.annotations
    return values.get(subscript["key"], "")
