"""Each requirement of a rule: which disruptions meet it, and how the match is worded."""

from datetime import datetime

import msgspec
import pytest

from recovery.core.diagnosis.classify import DisruptionClass, Finding
from recovery.core.diagnosis.evidence import LossKind
from recovery.core.model.facts import (
    ContainerFacts,
    ExitFacts,
    NodeFacts,
    PodFacts,
    Snapshot,
    Taint,
)
from tests.unit.core.diagnosis.matched import (
    BAD_GPU,
    EXIT_42,
    IN_42,
    NOT_IN_42,
    OF_NODE,
    PREEMPTED,
    RESTARTED,
    Json,
    answer,
    ended,
    finding,
    gpu,
    pod,
    rule,
    snapshot,
)
from tests.unit.core.world import START, at


def why(when: Json, found: Finding, facts: Snapshot | None = None, now: datetime = START) -> str | None:
    """How the match of the only rule is worded. None: the rule does not match."""
    match = answer((rule(**when),), found, facts=facts, now=now).match
    return None if match is None else match.why


BESIDE = pod(
    3,
    ContainerFacts("node", exit=ExitFacts(1, message="Xid 79")),
    other_containers=(ContainerFacts("proxy", exit=ExitFacts(42, message="KeyError: 'port'")),),
)


EXIT_CODES: dict[str, tuple[Json, Finding, str | None]] = {
    "in": (IN_42, finding(pod()), "exit code 42 of container node is in [42, 43]"),
    "not listed": (IN_42, finding(pod(3, ContainerFacts("node", exit=ExitFacts(1)))), None),
    "not in": (
        NOT_IN_42,
        finding(pod(3, ContainerFacts("node", exit=ExitFacts(1)))),
        "exit code 1 of container node is not in [42, 43]",
    ),
    "listed under NotIn": (NOT_IN_42, finding(pod()), None),
    "ended well": (NOT_IN_42, finding(pod(3, ContainerFacts("node", exit=ExitFacts(0)))), None),
    "of that container": (OF_NODE, finding(pod()), "exit code 42 of container node is in [42]"),
    "of another container": (OF_NODE, finding(pod(3, ContainerFacts("sidecar", exit=EXIT_42))), None),
    "of one of several containers": (
        IN_42,
        finding(pod(3, ContainerFacts("sidecar", exit=ExitFacts(1)), ContainerFacts("node", exit=EXIT_42))),
        "exit code 42 of container node is in [42, 43]",
    ),
    "of a sidecar, asked to go because the training had ended": (IN_42, finding(BESIDE), None),
    "of a sidecar that the rule names": (
        {"onExitCodes": {"operator": "In", "values": [42], "containerName": "proxy"}},
        finding(BESIDE),
        "exit code 42 of container proxy is in [42]",
    ),
    "of a pod in which nothing is known to train": (
        IN_42,
        finding(msgspec.structs.replace(BESIDE, containers=(), training_known=False)),
        None,
    ),
    "of an init container": (
        IN_42,
        finding(pod(3, ContainerFacts("node"), init_containers=(ContainerFacts("setup", exit=EXIT_42),))),
        "exit code 42 of container setup is in [42, 43]",
    ),
    "of a container that runs again": (
        IN_42,
        finding(RESTARTED, LossKind.CONTAINER_RESTARTED, exit=ExitFacts(42)),
        "exit code 42 of container node is in [42, 43]",
    ),
    "of a restart before this one": (
        IN_42,
        finding(RESTARTED, LossKind.CONTAINER_RESTARTED, exit=ExitFacts(1)),
        None,
    ),
    "of a restart before the pod failed": (
        IN_42,
        finding(pod(3, ContainerFacts("node", exit=ExitFacts(1), last_exit=EXIT_42))),
        None,
    ),
    "of a pod that was drained": (IN_42, finding(pod(), LossKind.POD_DISRUPTED), None),
    "of a pod that was deleted": (IN_42, finding(pod(), LossKind.POD_DELETED), None),
    "of a pod on a lost node": (IN_42, finding(pod(), LossKind.NODE_LOST), None),
    "without a pod": (IN_42, finding(None, LossKind.JOB_FAILING), None),
}


@pytest.mark.parametrize(("when", "found", "words"), EXIT_CODES.values(), ids=EXIT_CODES)
def test_exit_codes(when: Json, found: Finding, words: str | None) -> None:
    assert why(when, found) == words


HAS_TARGET = "pod train-3 has condition DisruptionTarget=True (PreemptionByScheduler)"


POD_CONDITIONS: dict[str, tuple[list[Json], PodFacts | None, str | None]] = {
    "the type": ([{"type": "DisruptionTarget"}], PREEMPTED, HAS_TARGET),
    "another type": ([{"type": "ConfigIssue"}], PREEMPTED, None),
    "another status": ([{"type": "DisruptionTarget", "status": "False"}], PREEMPTED, None),
    "the reason": ([{"type": "DisruptionTarget", "reason": "PreemptionByScheduler"}], PREEMPTED, HAS_TARGET),
    "another reason": ([{"type": "DisruptionTarget", "reason": "EvictionByEvictionAPI"}], PREEMPTED, None),
    "one of several": ([{"type": "ConfigIssue"}, {"type": "DisruptionTarget"}], PREEMPTED, HAS_TARGET),
    "no pod": ([{"type": "DisruptionTarget"}], None, None),
}


@pytest.mark.parametrize(("conditions", "lost", "words"), POD_CONDITIONS.values(), ids=POD_CONDITIONS)
def test_pod_conditions(conditions: list[Json], lost: PodFacts | None, words: str | None) -> None:
    assert why({"onPodConditions": conditions}, finding(lost, LossKind.POD_DISRUPTED)) == words


SILENT = gpu(ready=False, reachable=False, ready_reason="NodeStatusUnknown", ready_since=at(-30))


BROKEN = gpu(ready=False, ready_reason="KubeletNotReady", ready_since=at(-30))


NODE_CONDITIONS: dict[str, tuple[list[Json], NodeFacts | None, str | None]] = {
    "the type": ([{"type": "GpuUnhealthy"}], gpu(BAD_GPU), "node gpu-3 has condition GpuUnhealthy=True (Xid79)"),
    "the reason": (
        [{"type": "GpuUnhealthy", "reason": "Xid79"}],
        gpu(BAD_GPU),
        "node gpu-3 has condition GpuUnhealthy=True (Xid79)",
    ),
    "another reason": ([{"type": "GpuUnhealthy", "reason": "Xid48"}], gpu(BAD_GPU), None),
    "another status": ([{"type": "GpuUnhealthy", "status": "False"}], gpu(BAD_GPU), None),
    "for long enough": (
        [{"type": "GpuUnhealthy", "for": "1m"}],
        gpu(BAD_GPU),
        "node gpu-3 has condition GpuUnhealthy=True (Xid79) for 1m",
    ),
    "not for long enough": ([{"type": "GpuUnhealthy", "for": "61s"}], gpu(BAD_GPU), None),
    "nobody knows for how long": (
        [{"type": "GpuUnhealthy", "for": "1s"}],
        gpu(msgspec.structs.replace(BAD_GPU, since=None)),
        None,
    ),
    "nor is that asked": (
        [{"type": "GpuUnhealthy"}],
        gpu(msgspec.structs.replace(BAD_GPU, since=None, reason="")),
        "node gpu-3 has condition GpuUnhealthy=True",
    ),
    "by a clock that is ahead": (
        [{"type": "GpuUnhealthy"}],
        gpu(msgspec.structs.replace(BAD_GPU, since=at(5))),
        "node gpu-3 has condition GpuUnhealthy=True (Xid79)",
    ),
    "does not answer": (
        [{"type": "Ready", "status": "Unknown", "for": "30s"}],
        SILENT,
        "node gpu-3 has condition Ready=Unknown (NodeStatusUnknown) for 30s",
    ),
    "is not ready": (
        [{"type": "Ready", "status": "False"}],
        BROKEN,
        "node gpu-3 has condition Ready=False (KubeletNotReady)",
    ),
    "is not ready, yet answers": ([{"type": "Ready", "status": "Unknown"}], BROKEN, None),
    "one of several": (
        [{"type": "GpuUnhealthy", "for": "1h"}, {"type": "Ready", "status": "False"}],
        gpu(BAD_GPU, ready=False),
        "node gpu-3 has condition Ready=False (KubeletReady)",
    ),
    "another node": ([{"type": "GpuUnhealthy"}], gpu(BAD_GPU, name="gpu-4"), None),
    "no node": ([{"type": "GpuUnhealthy"}], None, None),
}


@pytest.mark.parametrize(("conditions", "node", "words"), NODE_CONDITIONS.values(), ids=NODE_CONDITIONS)
def test_node_conditions(conditions: list[Json], node: NodeFacts | None, words: str | None) -> None:
    facts = snapshot(*([node] if node is not None else []))
    assert why({"onNodeConditions": conditions}, finding(pod()), facts) == words


TAINTED = gpu(taints=(Taint("nvidia.com/xid", "79", "NoSchedule"), Taint("example.com/bare", "", "NoExecute")))


NODE_TAINTS: dict[str, tuple[list[Json], str | None]] = {
    "the key": ([{"key": "nvidia.com/xid"}], "node gpu-3 has taint nvidia.com/xid=79:NoSchedule"),
    "another key": ([{"key": "nvidia.com"}], None),
    "the value": ([{"key": "nvidia.com/xid", "value": "79"}], "node gpu-3 has taint nvidia.com/xid=79:NoSchedule"),
    "another value": ([{"key": "nvidia.com/xid", "value": ""}], None),
    "an empty value": ([{"key": "example.com/bare", "value": ""}], "node gpu-3 has taint example.com/bare:NoExecute"),
    "the effect": (
        [{"key": "example.com/bare", "effect": "NoExecute"}],
        "node gpu-3 has taint example.com/bare:NoExecute",
    ),
    "another effect": ([{"key": "nvidia.com/xid", "effect": "NoExecute"}], None),
    "one of several": (
        [{"key": "none"}, {"key": "nvidia.com/xid"}],
        "node gpu-3 has taint nvidia.com/xid=79:NoSchedule",
    ),
}


@pytest.mark.parametrize(("taints", "words"), NODE_TAINTS.values(), ids=NODE_TAINTS)
def test_node_taints(taints: list[Json], words: str | None) -> None:
    assert why({"onNodeTaints": taints}, finding(pod()), snapshot(TAINTED)) == words


MESSAGES: dict[str, tuple[str, Finding, str | None]] = {
    "termination message": (
        r"Xid\s+(\d+)",
        finding(ended("NVRM:\nXid  79, GPU has fallen off the bus")),
        r"the termination message of container node matches Xid\s+(\d+): 'Xid 79'",
    ),
    "what does not stand there": ("Xid", finding(ended("KeyError: 'lr'")), None),
    "a sidecar's": ("KeyError", finding(BESIDE), None),
    "a long match is cut": (
        "(?s)Traceback.*",
        finding(ended("Traceback " + "x" * 100)),
        "the termination message of container node matches (?s)Traceback.*: 'Traceback " + "x" * 70 + "...'",
    ),
    "the restart's": (
        "Xid",
        finding(
            pod(3, ContainerFacts("node", restarts=1, last_exit=ExitFacts(1, message="Xid 79")), phase="Running"),
            LossKind.CONTAINER_RESTARTED,
            exit=ExitFacts(1, message="Xid 79"),
        ),
        "the termination message of container node matches Xid: 'Xid'",
    ),
    "waiting reason": (
        "^ErrImage",
        finding(pod(3, ContainerFacts("node", waiting_reason="ErrImagePull"), phase="Pending"), LossKind.POD_DELETED),
        "the waiting reason of container node matches ^ErrImage: 'ErrImage'",
    ),
    "waiting message": (
        "no such host",
        finding(
            pod(3, ContainerFacts("node", waiting_message="dial: no such host"), phase="Pending"), LossKind.POD_DELETED
        ),
        "the waiting message of container node matches no such host: 'no such host'",
    ),
    "pod message": (
        "device plugin",
        finding(pod(message="Allocate failed due to device plugin")),
        "the message of pod train-3 matches device plugin: 'device plugin'",
    ),
    "within the first 4096 characters": (
        "end$",
        finding(ended("x" * 4093 + "end" + "y")),
        "the termination message of container node matches end$: 'end'",
    ),
    "beyond them": ("end", finding(ended("x" * 4094 + "end")), None),
    "what a drained pod said as it went": (
        "checkpoint saved",
        finding(ended("checkpoint saved"), LossKind.POD_DISRUPTED),
        None,
    ),
    "what a container that ended well said": (
        "done",
        finding(pod(3, ContainerFacts("node", exit=ExitFacts(0, message="done")))),
        None,
    ),
    "half of a character": (
        "Xid",
        finding(ended("\ud800 Xid")),
        "the termination message of container node matches Xid: 'Xid'",
    ),
    "no pod": ("Xid", finding(None, LossKind.JOB_FAILING), None),
    "a pattern that is none": ("(", finding(ended("(")), None),
}


@pytest.mark.parametrize(("pattern", "found", "words"), MESSAGES.values(), ids=MESSAGES)
def test_message_patterns(pattern: str, found: Finding, words: str | None) -> None:
    assert why({"onMessagePattern": pattern}, found) == words


@pytest.mark.parametrize("pattern", [r"(a+)+$", r"(a|aa)+$", r"(.*a){20}$", r"(a?){500}a{500}$"])
def test_a_catastrophic_pattern_is_answered(pattern: str) -> None:
    """For `(a+)+$` and thirty characters the standard library's `re` tries 2^29 ways to split the text. Here it would
    not end."""
    found = finding(ended("a" * 4095 + "!"))
    assert why({"onMessagePattern": pattern}, found) is None


CLASSES: dict[str, tuple[list[str], str | None]] = {
    "the class": (["Killed"], "the class is Killed"),
    "one of several": (["UserError", "Killed"], "the class is Killed"),
    "another class": (["UserError"], None),
}


@pytest.mark.parametrize(("classes", "words"), CLASSES.values(), ids=CLASSES)
def test_classes(classes: list[str], words: str | None) -> None:
    assert why({"onClass": classes}, finding(pod(), means=DisruptionClass.KILLED)) == words


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        (["node"], "it belongs to ReplicatedJob node"),
        (["a", "node"], "it belongs to ReplicatedJob node"),
        (["launcher"], None),
    ],
)
def test_target_replicated_jobs(targets: list[str], words: str | None) -> None:
    assert why({"targetReplicatedJobs": targets}, finding(None, LossKind.JOB_FAILING)) == words


def test_a_job_that_is_not_known_is_of_no_replicated_job() -> None:
    facts = msgspec.structs.replace(snapshot(), jobs=())
    assert why({"targetReplicatedJobs": ["node"]}, finding(pod()), facts) is None


# --- requirements together -----------------------------------------------------------------------------------------

TOGETHER: Json = IN_42 | {"onClass": ["UserError"], "onNodeConditions": [{"type": "GpuUnhealthy"}]}


def test_fields_are_anded_and_all_are_named() -> None:
    found = finding(pod(), means=DisruptionClass.USER_ERROR)
    assert why(TOGETHER, found, snapshot(gpu(BAD_GPU))) == (
        "the class is UserError and exit code 42 of container node is in [42, 43] and node gpu-3 has condition "
        "GpuUnhealthy=True (Xid79)"
    )
    assert why(TOGETHER, finding(pod(), means=DisruptionClass.KILLED), snapshot(gpu(BAD_GPU))) is None
    assert why(TOGETHER, found, snapshot(gpu())) is None
    other = finding(pod(3, ContainerFacts("node", exit=ExitFacts(1))), means=DisruptionClass.USER_ERROR)
    assert why(TOGETHER, other, snapshot(gpu(BAD_GPU))) is None


def test_conditions_and_taints_of_a_node_are_anded() -> None:
    when: Json = {"onNodeConditions": [{"type": "GpuUnhealthy"}], "onNodeTaints": [{"key": "nvidia.com/xid"}]}
    taint = Taint("nvidia.com/xid", "79")
    assert why(when, finding(pod()), snapshot(gpu(BAD_GPU))) is None
    assert why(when, finding(pod()), snapshot(gpu(taints=(taint,)))) is None
    assert why(when, finding(pod()), snapshot(gpu(BAD_GPU, taints=(taint,)))) == (
        "node gpu-3 has condition GpuUnhealthy=True (Xid79) and node gpu-3 has taint nvidia.com/xid=79:NoSchedule"
    )


def test_a_rule_that_asks_for_nothing_matches_every_disruption() -> None:
    assert why({}, finding(None, LossKind.JOB_FAILING)) == "it matches every disruption"
