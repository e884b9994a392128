"""Which rule decides about a disruption: facts in, the rule and why out."""

import time
from datetime import datetime
from typing import Any, TypeAlias

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.core.diagnosis.classify import Disruption, DisruptionClass, Finding
from recovery.core.diagnosis.evidence import Evidence, LossKind
from recovery.core.diagnosis.matching import Answer, ask, may_change, next_node_fault_at, node_faults, node_signs
from recovery.core.model.facts import (
    Condition,
    ContainerFacts,
    ExitFacts,
    GroupKey,
    JobFacts,
    JobSetFacts,
    NodeFacts,
    PodFacts,
    Snapshot,
    Taint,
)
from recovery.core.model.rules import Rule, RuleAction
from tests.unit.core.world import START, at

EXIT_42 = ExitFacts(42, finished_at=at(0))
Json: TypeAlias = dict[str, Any]


def rule(action: str = "RecreateGroup", name: str = "a", **when: object) -> Rule:
    return msgspec.convert({"name": name, "action": action, "when": when}, Rule)


def pod(index: int = 3, *containers: ContainerFacts, **changes: object) -> PodFacts:
    made = PodFacts(
        name=f"train-{index}",
        uid=f"uid-{index}",
        job_uid="job",
        job_name="train-node-0",
        index=index,
        created_at=at(-100),
        node=f"gpu-{index}",
        phase="Failed",
        containers=containers or (ContainerFacts("node", exit=EXIT_42),),
    )
    return msgspec.structs.replace(made, **changes)


def finding(
    lost: PodFacts | None,
    kind: LossKind = LossKind.POD_FAILED,
    means: DisruptionClass = DisruptionClass.UNKNOWN,
    *,
    cascade: bool = False,
    exit: ExitFacts | None = None,  # noqa: A002 - the name of the field
) -> Finding:
    uid = lost.uid if lost is not None else "job"
    item = Evidence(f"{uid}/lost", kind, "it was lost", "job", at=at(0), pod=lost, exit=exit)
    return Finding(item, means, cascade=cascade)


def snapshot(*nodes: NodeFacts, pods: tuple[PodFacts, ...] = (), replicated_job: str = "node") -> Snapshot:
    job = JobFacts("train-node-0", "job", "1", "jobset", replicated_job, at(-200))
    return Snapshot(
        key=GroupKey("ml", "train"),
        workload=None,
        jobset=JobSetFacts("train", "jobset", "1", 1, at(-300)),
        jobs=(job,),
        pods=pods,
        nodes={node.name: node for node in nodes},
    )


def answer(rules: tuple[Rule, ...], *findings: Finding, facts: Snapshot | None = None, now: datetime = START) -> Answer:
    return ask(rules, Disruption(findings), facts if facts is not None else snapshot(), now)


def why(when: Json, found: Finding, facts: Snapshot | None = None, now: datetime = START) -> str | None:
    """In which words the only rule matches; None: it does not."""
    match = answer((rule(**when),), found, facts=facts, now=now).match
    return None if match is None else match.why


def gpu(*conditions: Condition, taints: tuple[Taint, ...] = (), **changes: object) -> NodeFacts:
    made = NodeFacts("gpu-3", ready=True, ready_since=at(-1000), ready_reason="KubeletReady")
    return msgspec.structs.replace(made, conditions=conditions, taints=taints, **changes)


BAD_GPU = Condition("GpuUnhealthy", "True", "Xid79", since=at(-60))

# --- each kind of requirement --------------------------------------------------------------------------------------

IN_42: Json = {"onExitCodes": {"operator": "In", "values": [42, 43]}}
NOT_IN_42: Json = {"onExitCodes": {"operator": "NotIn", "values": [42, 43]}}
OF_NODE: Json = {"onExitCodes": {"operator": "In", "values": [42], "containerName": "node"}}
RESTARTED = pod(3, ContainerFacts("node", restarts=2, running_since=at(1), last_exit=ExitFacts(42)), phase="Running")

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


PREEMPTED = pod(conditions=(Condition("DisruptionTarget", "True", "PreemptionByScheduler"),))
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


def ended(message: str) -> PodFacts:
    return pod(3, ContainerFacts("node", exit=ExitFacts(1, message=message)))


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
def test_a_catastrophic_pattern_costs_bounded_time(pattern: str) -> None:
    """The standard library's `re` tries every way to split the text: for `(a+)+$` 2^29 of thirty characters."""
    found = finding(ended("a" * 4095 + "!"))
    begun = time.process_time()
    assert why({"onMessagePattern": pattern}, found) is None
    assert time.process_time() - begun < 5


CLASSES: dict[str, tuple[list[str], str | None]] = {
    "the class": (["Killed"], "its class is Killed"),
    "one of several": (["UserError", "Killed"], "its class is Killed"),
    "another class": (["UserError"], None),
}


@pytest.mark.parametrize(("classes", "words"), CLASSES.values(), ids=CLASSES)
def test_classes(classes: list[str], words: str | None) -> None:
    assert why({"onClass": classes}, finding(pod(), means=DisruptionClass.KILLED)) == words


@pytest.mark.parametrize(
    ("targets", "words"),
    [(["node"], "it is of ReplicatedJob node"), (["a", "node"], "it is of ReplicatedJob node"), (["launcher"], None)],
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
        "its class is UserError and exit code 42 of container node is in [42, 43] and "
        "node gpu-3 has condition GpuUnhealthy=True (Xid79)"
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


# --- which rule, which cause ---------------------------------------------------------------------------------------


def decided(found: Answer) -> tuple[str, int] | None:
    """Name and place of the rule that decides."""
    return None if found.match is None else (found.match.rule.name, found.match.number)


def test_the_first_match_decides() -> None:
    rules = (rule(name="no", onClass=["UserError"]), rule("FailJob", "b", **IN_42), rule("Ignore", "c"))
    assert decided(answer(rules, finding(pod()))) == ("b", 1)


def test_no_match_is_no_decision() -> None:
    assert answer((rule(onClass=["UserError"]),), finding(pod())) == Answer()
    assert answer((), finding(pod())) == Answer()


def test_the_root_is_asked_about_and_no_cause_after_it() -> None:
    root, later = finding(pod(1), means=DisruptionClass.KILLED), finding(pod(2), means=DisruptionClass.USER_ERROR)
    assert decided(answer((rule("FailJob", onClass=["UserError"]),), root, later)) is None
    found = answer((rule("FailJob", onClass=["UserError"]), rule(name="b", onClass=["Killed"])), root, later)
    assert decided(found) == ("b", 1)
    assert found.match is not None
    assert found.match.finding is root


def test_no_rule_meets_the_exit_code_of_a_cascade() -> None:
    root, cascade = finding(pod(1, ContainerFacts("node", exit=ExitFacts(137)))), finding(pod(2), cascade=True)
    assert answer((rule("FailJob", **IN_42),), root, cascade) == Answer()


def test_where_nothing_but_consequence_is_known_it_is_asked_about() -> None:
    assert decided(answer((rule("FailJob", **IN_42),), finding(pod(), cascade=True))) == ("a", 0)


def test_ignore_takes_a_cause_out_and_the_next_one_is_the_root() -> None:
    drained, crashed = finding(pod(1), LossKind.POD_DISRUPTED, DisruptionClass.POD_DISRUPTED), finding(pod(2))
    rules = (rule("Ignore", "drains", onClass=["PodDisrupted"]), rule("FailJob", "codes", **IN_42))
    found = answer(rules, drained, crashed)
    assert decided(found) == ("codes", 1)
    assert [(each.rule.name, each.finding) for each in found.ignored] == [("drains", drained)]
    # What no rule matches is left to the default, the ignored cause stays out.
    found = answer(rules[:1], drained, crashed)
    assert (found.match, len(found.ignored)) == (None, 1)


def test_consequence_is_ignored_with_its_cause() -> None:
    drained = finding(pod(1), LossKind.POD_DISRUPTED, DisruptionClass.POD_DISRUPTED)
    rules = (rule("Ignore", "drains", onClass=["PodDisrupted"]), rule("FailJob", "codes", **IN_42))
    found = answer(rules, drained, finding(pod(2), cascade=True))
    assert (found.match, [each.finding for each in found.ignored]) == (None, [drained])


def test_no_rule_is_asked_about_what_a_person_asks_for() -> None:
    wish = finding(None, LossKind.MANUAL, DisruptionClass.MANUAL)
    assert answer((rule("Ignore"),), wish) == Answer()
    assert may_change((rule("Ignore"),), Disruption((wish,)), snapshot()) is False


HELD_LATER = rule("FailJob", "later", onNodeConditions=[{"type": "GpuUnhealthy", "for": "90s"}])


def test_it_says_when_time_alone_would_make_an_earlier_rule_match() -> None:
    facts = snapshot(gpu(BAD_GPU))
    found = answer((HELD_LATER, rule(name="now")), finding(pod()), facts=facts)
    assert (decided(found), found.changes_at) == (("now", 1), at(30))
    # A rule below the one that decides never will.
    assert answer((rule(name="now"), HELD_LATER), finding(pod()), facts=facts).changes_at is None
    # Where something else of the rule fails, time does not help.
    both = msgspec.structs.replace(HELD_LATER, when=msgspec.structs.replace(HELD_LATER.when, on_class=("Killed",)))
    assert answer((both,), finding(pod()), facts=facts).changes_at is None
    found = answer((HELD_LATER, rule(name="now")), finding(pod()), facts=facts, now=at(30))
    assert (decided(found), found.changes_at) == (("later", 0), None)


WHENS = st.sampled_from(
    [
        {},
        IN_42,
        NOT_IN_42,
        OF_NODE,
        {"onClass": ["Killed", "UserError"]},
        {"onClass": ["PodDisrupted"]},
        {"onMessagePattern": "Xid"},
        {"targetReplicatedJobs": ["node"]},
        {"targetReplicatedJobs": ["launcher"]},
        {"onNodeConditions": [{"type": "GpuUnhealthy", "for": "90s"}]},
        {"onNodeConditions": [{"type": "GpuUnhealthy"}]},
        {"onNodeTaints": [{"key": "nvidia.com/xid"}]},
        {"onPodConditions": [{"type": "DisruptionTarget"}]},
    ]
)
RULES = st.lists(
    st.builds(lambda action, when: rule(action, **when), st.sampled_from(list(RuleAction)), WHENS), max_size=5
)
PODS = st.sampled_from([pod(3), pod(2), PREEMPTED, RESTARTED, ended("Xid 79"), None])
FINDINGS = st.lists(
    st.builds(
        lambda lost, kind, means, cascade: finding(lost, kind, means, cascade=cascade),
        PODS,
        st.sampled_from(list(LossKind)),
        st.sampled_from(list(DisruptionClass)),
        st.booleans(),
    ),
    min_size=1,
    max_size=4,
)


@given(RULES, RULES, FINDINGS)
def test_rules_below_the_one_that_decides_change_nothing(
    rules: list[Rule], more: list[Rule], found: list[Finding]
) -> None:
    facts = snapshot(gpu(BAD_GPU))
    before = answer(tuple(rules), *found, facts=facts)
    if before.match is None:
        return
    kept = rules[: max(match.number for match in (before.match, *before.ignored)) + 1]
    assert answer((*kept, *more), *found, facts=facts) == before


@given(RULES, FINDINGS)
def test_what_is_only_consequence_decides_nothing_beside_a_cause(rules: list[Rule], found: list[Finding]) -> None:
    causes = [each for each in found if not each.cascade]
    facts = snapshot(gpu(BAD_GPU))
    if causes:
        assert answer(tuple(rules), *found, facts=facts) == answer(tuple(rules), *causes, facts=facts)


# --- may late evidence change it -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "may"),
    [
        ((), False),
        ((rule("RecreateGroup"), rule("ReplaceNode")), False),
        ((rule("FailJob", **IN_42),), True),
        ((rule("RecreateGroup"), rule("Ignore", **IN_42)), True),
        ((rule("FailJob", targetReplicatedJobs=["node"]),), True),
        ((rule("FailJob", targetReplicatedJobs=["launcher"]),), False),
    ],
    ids=["no rules", "none that ends or ignores", "FailJob", "Ignore", "of this ReplicatedJob", "of another"],
)
def test_late_evidence_matters_only_to_ignore_and_fail_job(rules: tuple[Rule, ...], may: bool) -> None:
    assert may_change(rules, Disruption((finding(pod()),)), snapshot()) is may


def test_a_loss_of_which_nobody_knows_whose_may_be_anybodys() -> None:
    facts = msgspec.structs.replace(snapshot(), jobs=())
    assert may_change((rule("FailJob", targetReplicatedJobs=["launcher"]),), Disruption((finding(pod()),)), facts)


# --- faults of nodes under running members -------------------------------------------------------------------------

RUNNING = pod(3, ContainerFacts("node", running_since=at(-90)), phase="Running")
NODE_RULE = rule("ReplaceNode", "bad-gpu", onNodeConditions=[{"type": "GpuUnhealthy"}])


def test_a_rule_about_nodes_makes_evidence_of_a_member_that_still_runs() -> None:
    [item] = node_faults((NODE_RULE,), snapshot(gpu(BAD_GPU), pods=(RUNNING,)), START)
    assert (item.key, item.kind, item.at, item.pod) == ("uid-3/rule/bad-gpu", LossKind.NODE_FAULT, at(-60), RUNNING)
    assert item.text == (
        "pod train-3 (rank 3, node gpu-3) runs on a faulty node: "
        "node gpu-3 has condition GpuUnhealthy=True (Xid79) (rule bad-gpu)"
    )


NO_FAULT: dict[str, tuple[Rule, PodFacts]] = {
    "FailJob is not for members that run": (rule("FailJob", onNodeConditions=[{"type": "GpuUnhealthy"}]), RUNNING),
    "nor is Ignore": (rule("Ignore", onNodeConditions=[{"type": "GpuUnhealthy"}]), RUNNING),
    "asks for more than nodes": (rule(onNodeConditions=[{"type": "GpuUnhealthy"}], **IN_42), RUNNING),
    "asks for a class too": (rule(onNodeConditions=[{"type": "GpuUnhealthy"}], onClass=["HardwareFault"]), RUNNING),
    "asks for nothing of nodes": (rule(targetReplicatedJobs=["node"]), RUNNING),
    "of another ReplicatedJob": (
        rule(onNodeConditions=[{"type": "GpuUnhealthy"}], targetReplicatedJobs=["launcher"]),
        RUNNING,
    ),
    "not yet": (rule(onNodeConditions=[{"type": "GpuUnhealthy", "for": "61s"}]), RUNNING),
    "on another node": (NODE_RULE, msgspec.structs.replace(RUNNING, node="gpu-4")),
    "has failed": (NODE_RULE, msgspec.structs.replace(RUNNING, phase="Failed")),
    "is going": (NODE_RULE, msgspec.structs.replace(RUNNING, deleting_since=at(0))),
    "is gone": (NODE_RULE, msgspec.structs.replace(RUNNING, gone_at=at(0))),
    "counts as dead": (NODE_RULE, msgspec.structs.replace(RUNNING, dead_since=at(0))),
    "of a Job that is no member": (NODE_RULE, msgspec.structs.replace(RUNNING, job_uid="other")),
}


@pytest.mark.parametrize(("asked", "member"), NO_FAULT.values(), ids=NO_FAULT)
def test_no_fault(asked: Rule, member: PodFacts) -> None:
    assert node_faults((asked,), snapshot(gpu(BAD_GPU), pods=(member,)), START) == ()


def test_a_job_that_stands_still_has_no_faults() -> None:
    facts = snapshot(gpu(BAD_GPU), pods=(RUNNING,))
    suspended = msgspec.structs.replace(facts, jobs=(msgspec.structs.replace(facts.jobs[0], suspended=True),))
    assert node_faults((NODE_RULE,), suspended, START) == ()


def test_a_fault_is_dated_from_when_its_rule_began_to_hold() -> None:
    held = rule("ReplaceNode", onNodeConditions=[{"type": "GpuUnhealthy", "for": "45s"}])
    facts = snapshot(gpu(BAD_GPU, taints=(Taint("a", since=at(-10)), Taint("b"))), pods=(RUNNING,))
    assert [item.at for item in node_faults((held,), facts, START)] == [at(-15)]
    tainted = rule("ReplaceNode", onNodeConditions=[{"type": "GpuUnhealthy"}], onNodeTaints=[{"key": "a"}])
    assert [item.at for item in node_faults((tainted,), facts, START)] == [at(-10)]


def test_a_taint_without_a_time_calls_for_another_node_or_for_nothing() -> None:
    """A group that tolerates it may come back to it: RecreateGroup would begin again for ever."""
    facts = snapshot(gpu(taints=(Taint("b"),)), pods=(RUNNING,))
    undated = rule("ReplaceNode", onNodeTaints=[{"key": "b"}])
    assert [item.at for item in node_faults((undated,), facts, START)] == [None]
    assert node_faults((rule("RecreateGroup", onNodeTaints=[{"key": "b"}]),), facts, START) == ()


@pytest.mark.parametrize(
    ("when", "sign"),
    [
        ({"onNodeConditions": [{"type": "Other"}, {"type": "GpuUnhealthy"}]}, "GpuUnhealthy"),
        ({"onNodeConditions": [{"type": "GpuHealthy", "status": "False"}]}, "GpuHealthy=False"),
        ({"onNodeConditions": [{"type": "Other"}], "onNodeTaints": [{"key": "c"}, {"key": "a"}]}, "a"),
        (
            {
                "onNodeConditions": [{"type": "GpuUnhealthy"}, {"type": "GpuHealthy", "status": "False"}],
                "onNodeTaints": [{"key": "a"}, {"key": "a", "effect": "NoSchedule"}],
            },
            "GpuUnhealthy, GpuHealthy=False, a",
        ),
        ({"onNodeTaints": [{"key": "c"}]}, ""),
        ({"onClass": ["HardwareFault"]}, ""),
    ],
    ids=["condition", "condition of another status", "taint", "all of them", "none of them", "asks for none"],
)
def test_the_signs_of_a_node_are_all_that_meets_the_rule(when: Json, sign: str) -> None:
    node = gpu(BAD_GPU, Condition("GpuHealthy", "False"), taints=(Taint("a"),))
    assert node_signs(rule(**when).when, node) == sign


def test_each_rule_and_each_pod_has_a_fault_of_its_own() -> None:
    other = msgspec.structs.replace(RUNNING, name="train-2", uid="uid-2", index=2)
    second = rule("RecreateGroup", "tainted", onNodeTaints=[{"key": "a"}])
    facts = snapshot(gpu(BAD_GPU, taints=(Taint("a", since=at(0)),)), pods=(RUNNING, other))
    assert [item.key for item in node_faults((NODE_RULE, second), facts, START)] == [
        "uid-3/rule/bad-gpu",
        "uid-3/rule/tainted",
        "uid-2/rule/bad-gpu",
        "uid-2/rule/tainted",
    ]


def test_it_says_when_time_will_make_the_next_fault() -> None:
    held = [
        rule("ReplaceNode", "90", onNodeConditions=[{"type": "GpuUnhealthy", "for": "90s"}]),
        rule("ReplaceNode", "70", onNodeConditions=[{"type": "GpuUnhealthy", "for": "70s"}]),
        NODE_RULE,
    ]
    facts = snapshot(gpu(BAD_GPU), pods=(RUNNING,))
    assert next_node_fault_at(held, facts, START) == at(10)
    assert next_node_fault_at(held, facts, at(10)) == at(30)
    assert next_node_fault_at(held, facts, at(30)) is None
    assert next_node_fault_at(held, snapshot(gpu(), pods=(RUNNING,)), START) is None
