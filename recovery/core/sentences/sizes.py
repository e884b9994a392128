"""What is decided about the size of an elastic group, and about settings at birth."""

from recovery.core.model.reason import Reason
from recovery.core.model.sentence import Sentence
from recovery.core.sentences.text import Details, Text


def _shrinks(details: Details) -> str:
    free = f" ({details['free']})" if details["free"] else ""
    return (
        f"{details['found']}; {details['why']}; attempt {details['attempt']}: deleting Job {details['jobs']} so that "
        f"the group continues with {details['nodes']} nodes{free}{_quota(details)}"
    )


def _runs_smaller(details: Details) -> str:
    return f"has run with {details['nodes']} of {details['wanted']} nodes since {details['since']}{_quota(details)}"


def _quota(details: Details) -> str:
    return f"; {details['quota']}" if details["quota"] else ""


def _room_again(details: Details) -> str:
    spares = f", {details['spares']} of them spares" if details["spares"] else ""
    return (
        f"since {details['since']} there has been room for {details['nodes']} nodes instead of {details['before']} "
        f"(on {details['where']}{spares})"
    )


def _refuses(details: Details) -> str:
    status = f" ({details['status']})" if details["status"] else ""
    return f"the kubelet of node {details['node']} has refused {details['count']} pods of this group{status}"


TEXTS: dict[Sentence | Reason, Text] = {
    Reason.NODES_NOT_REPLACED: (
        "{placed} of {ranks} pods have a node, and the largest size that policy {policy} allows for them is {nodes}"
    ),
    Reason.GROWTH_UNDONE: (
        "the growth did not get its nodes: {placed} of {ranks} pods have one, and the largest size that policy "
        "{policy} allows for them is {nodes}"
    ),
    Reason.BELOW_MIN_NODES: (
        "{placed} of {ranks} pods have a node, and the smallest allowed size is {least}: the group waits for room"
    ),
    Sentence.AVOIDS: "{why}, so this group avoids node {node}",
    Sentence.AVOIDS_FOR: "this group avoids node {node} for {lasts}",
    Reason.NODE_NOT_AVOIDED: "node {node} is not avoided: {why}",
    Reason.NODE_REFUSES_PODS: _refuses,
    Reason.AVOIDANCE_ENDED: (
        "{placed} of {ranks} pods have a node while the group avoids {nodes}, so it stops avoiding nodes"
    ),
    Reason.SIZE_FIXED: "the size of the group cannot be changed: {why}",
    Reason.INDEX_SUCCEEDED: (
        "the size of the group cannot be changed: {count} pods of Job {job} have succeeded, and another size would end "
        "the Job or run them again"
    ),
    Sentence.SHRINKS: _shrinks,
    Sentence.QUOTA_KEPT: "Kueue keeps the quota of all {nodes} nodes reserved while the group is smaller",
    Sentence.RUNS_SMALLER: _runs_smaller,
    Sentence.GROWS: "{why}: deleting Job {jobs} so that the group grows to {nodes} nodes",
    Reason.ROOM_AGAIN: _room_again,
    Reason.WAITING_FOR_ROOM: "runs with {nodes} of {wanted} nodes: {why}",
    Reason.TRYING_BIRTH_SETTINGS: "a dry run shows first whether the Job can be created with its new settings",
    Reason.BIRTH_SETTINGS_REFUSED: "the API server refuses the Job with its new settings, so they are withdrawn: {why}",
    Reason.BIRTH_SETTINGS_NOT_APPLIED: (
        "the API server creates the Job without its new settings, so they are withdrawn: check that the component "
        "birth-settings is installed, and that its webhook, if it has one, is served"
    ),
    Reason.BIRTH_SETTINGS_OVERRULED: (
        "JobSet runs with its feature gate ElasticJobSet and gives each Job the size of its template, so no other size "
        "would last"
    ),
}
