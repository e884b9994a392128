"""Applies birth settings to a Job when it is created: its size, and the nodes that its pods avoid.

The webhook of `recovery.admission` and the modelled API server call `born`. The MutatingAdmissionPolicy of
`manifests/components/birth-settings` does the same in CEL. `tests/contract` checks that the model and the policy behave
alike, and `tests/cluster/test_birth_settings_webhook.py` checks the webhook.
"""

from collections.abc import Iterable
from typing import Any

BIRTH_SETTINGS_ANNOTATION = "recovery.trainjob.dev/birth-settings"
NODES_ANNOTATION = "recovery.trainjob.dev/nodes"
SIZE_VARIABLE = "PET_NNODES"

JOBSET_NAME_LABEL = "jobset.sigs.k8s.io/jobset-name"
JOBSET_UID_LABEL = "jobset.sigs.k8s.io/jobset-uid"
REPLICATED_JOB_LABEL = "jobset.sigs.k8s.io/replicatedjob-name"
_HOSTNAME_LABEL = "kubernetes.io/hostname"

_Fields = dict[str, Any]
"""An API object, or part of one, as decoded JSON."""


def of_job_set(job: _Fields) -> bool:
    """Whether the Job belongs to a JobSet. Only such Jobs may have birth settings."""
    return JOBSET_NAME_LABEL in _labels(job)


def born(job: _Fields, settings: Iterable[_Fields]) -> _Fields:
    """The Job as it is created. If no settings apply, it is the Job that was passed in. The arguments do not change.

    `settings`: `status.birthSettings` of the labelled RecoveryGroups in the namespace of the Job.
    """
    if not of_job_set(job):
        return job
    labels = _labels(job)
    # The UID decides: a JobSet that was deleted and created again under the same name is another JobSet.
    own = labels.get(JOBSET_UID_LABEL, ""), labels.get(REPLICATED_JOB_LABEL, "")
    for each in settings:
        if own == (each["jobSetUID"], each["replicatedJob"]):
            job = _with_settings(job, each)
    return job


def _labels(job: _Fields) -> dict[str, str]:
    return job["metadata"].get("labels") or {}


def _with_settings(job: _Fields, settings: _Fields) -> _Fields:
    """All settings apply, or none: the policy makes one patch, and a patch that does not fit is ignored."""
    try:
        return _changed(job, settings)
    except KeyError:  # a map that the patch would add to does not exist
        return job


def _changed(job: _Fields, settings: _Fields) -> _Fields:
    metadata, spec = job["metadata"], dict(job["spec"])
    template, pods = spec["template"], dict(spec["template"]["spec"])
    annotations = {**metadata["annotations"], BIRTH_SETTINGS_ANNOTATION: str(settings["revision"])}
    if "nodes" in settings:
        size = {NODES_ANNOTATION: str(settings["nodes"])}
        annotations |= size
        spec |= {"parallelism": settings["nodes"], "completions": settings["nodes"]}
        about_pods = template["metadata"]
        template = {**template, "metadata": {**about_pods, "annotations": {**about_pods["annotations"], **size}}}
        pods["containers"] = [_with_size(container, settings["nodes"]) for container in pods["containers"]]
    if settings.get("avoidHosts"):
        pods["affinity"] = _avoiding(pods.get("affinity"), settings["avoidHosts"])
    spec["template"] = {**template, "spec": pods}
    return {**job, "metadata": {**metadata, "annotations": annotations}, "spec": spec}


def _with_size(container: _Fields, nodes: int) -> _Fields:
    """Sets the size in a container whose template already sets one."""
    if not any(variable["name"] == SIZE_VARIABLE for variable in container.get("env") or ()):
        return container
    size = {"name": SIZE_VARIABLE, "value": str(nodes)}
    return {**container, "env": [size if each["name"] == SIZE_VARIABLE else each for each in container["env"]]}


def _avoiding(affinity: Any, hosts: list[str]) -> _Fields:
    """The affinity of a template, with the hosts excluded. `affinity` None: the template has none."""
    exclusion = {"key": _HOSTNAME_LABEL, "operator": "NotIn", "values": list(hosts)}
    of_nodes = dict((affinity or {}).get("nodeAffinity") or {})
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    if of_nodes.get(required) is None:
        of_nodes[required] = {"nodeSelectorTerms": [{"matchExpressions": [exclusion]}]}
    else:
        terms = [_excluding(term, exclusion) for term in of_nodes[required]["nodeSelectorTerms"]]
        of_nodes[required] = {**of_nodes[required], "nodeSelectorTerms": terms}
    return {**(affinity or {}), "nodeAffinity": of_nodes}


def _excluding(term: _Fields, exclusion: _Fields) -> _Fields:
    """Terms are ORed, so each must exclude the hosts. An empty term matches no node, and stays empty."""
    said = term.get("matchExpressions") or []
    if exclusion in said or not (said or term.get("matchFields")):
        return term
    return {**term, "matchExpressions": [*said, exclusion]}
