"""What a job's message says about a node quarantines the node only if something else confirms it."""

import msgspec
import pytest

from recovery.core.diagnosis.signature_table import proof_of_node, sign_of_node
from recovery.core.model.facts import Condition, NodeFacts, Taint
from recovery.core.model.fleet_ledger import FleetLedger, FleetLimits, Quarantined, Suspicion
from recovery.core.model.ledger import AttemptAction
from recovery.core.model.rules import NodeConditionRule, Rule, RuleAction, When
from recovery.core.policy.resolved import Policy
from tests.unit.core.decision.test_replacing_nodes import quarantined
from tests.unit.core.decision.test_verdicts import MAY, TRUSTED, on_exit
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import training
from tests.unit.core.world import World, at

XID = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
BY_PATTERN = Rule("text", RuleAction.REPLACE_NODE, When(on_message_pattern="disk of .* is bad"))
WITH_NODE = Rule(
    "both",
    RuleAction.REPLACE_NODE,
    When(on_message_pattern="disk of .* is bad", on_node_conditions=(NodeConditionRule("DiskFault"),)),
)
BY_CLASS = Rule("hardware", RuleAction.REPLACE_NODE, When(on_class=("HardwareFault",)))
BAD_DISK = "the disk of this machine is bad"


def says(message: str, *, code: int = 134) -> World:
    """Rank 2 on node gpu-2 ends with this message."""
    return training().pod_failed(2, code, 0, message=message)


def suspicion(
    namespace: str, *, incident: str = "other-1", by_message: bool = True, seconds: float = -600
) -> Suspicion:
    return Suspicion("gpu-2", incident, at(seconds), "seen there", namespace, by_message)


def with_condition(world: World, condition: str) -> World:
    return world.with_node("gpu-2", conditions=(Condition(condition, "True", since=at(-1)),))


# --- what confirms a message ---------------------------------------------------------------------------------------

CASES: dict[str, tuple[tuple[Rule, ...], World, tuple[Suspicion, ...], FleetLimits, bool]] = {
    "a message alone": ((), says(XID), (), MAY, False),
    "the same namespace again": ((), says(XID), (suspicion("ml"), suspicion("ml", incident="other-2")), MAY, False),
    "a second namespace by a message": ((), says(XID), (suspicion("nlp"),), MAY, True),
    "a second namespace by an exit": ((), says(XID), (suspicion("nlp", by_message=False),), MAY, True),
    "a second namespace, too long ago": ((), says(XID), (suspicion("nlp", seconds=-90_000),), MAY, False),
    "a condition of the node": ((), with_condition(says(XID), "GpuXidError"), (), MAY, True),
    "a degraded node": ((), with_condition(says(XID), "XIDErrors"), (), MAY, True),
    "a condition about something else": ((), with_condition(says(XID), "MemoryPressure"), (), MAY, False),
    "RecoveryConfig trusts the namespace": ((), says(XID), (), TRUSTED, True),
    "a rule by a pattern": ((BY_PATTERN,), says(BAD_DISK), (), MAY, False),
    "a rule by a pattern, and a second namespace": ((BY_PATTERN,), says(BAD_DISK), (suspicion("nlp"),), MAY, True),
    "a rule by a pattern, trusted": ((BY_PATTERN,), says(BAD_DISK), (), TRUSTED, True),
    "a rule by a pattern and by the node": ((WITH_NODE,), with_condition(says(BAD_DISK), "DiskFault"), (), MAY, True),
    "a rule by a class that a message tells": ((BY_CLASS,), says(XID), (), MAY, False),
    "a rule by a class that the node tells": ((BY_CLASS,), with_condition(says(""), "GpuXidError"), (), MAY, True),
    "a rule by an exit code": ((on_exit(42, RuleAction.REPLACE_NODE),), says("", code=42), (), MAY, True),
}


@pytest.mark.parametrize(("rules", "world", "suspicions", "limits", "replaced"), CASES.values(), ids=CASES)
def test_a_message_blames_a_node_only_where_something_else_confirms_it(
    rules: tuple[Rule, ...], world: World, suspicions: tuple[Suspicion, ...], limits: FleetLimits, replaced: bool
) -> None:
    controller = Controller(policy(rules=rules, limits=limits, fleet=FleetLedger(suspicions=suspicions)))
    controller.reconcile(world, 1)
    assert len(controller.triggers) == 1, "the group is recreated all the same"
    assert quarantined(controller) == (["gpu-2"] if replaced else [])
    action = AttemptAction.REPLACE_NODE if replaced else AttemptAction.RECREATE_GROUP
    assert controller.incident.attempts[-1].action is action


def test_the_sentence_says_what_is_missing() -> None:
    controller = Controller(policy(limits=MAY))
    controller.reconcile(says(XID), 1)
    assert "only messages of pods in namespace ml blame node gpu-2" in controller.incident.message


@pytest.mark.parametrize(("rules", "message"), [((), XID), ((BY_PATTERN,), BAD_DISK)], ids=["default", "rule"])
def test_what_a_message_says_is_noted_so_that_a_second_namespace_confirms_it(
    rules: tuple[Rule, ...], message: str
) -> None:
    first = Controller(policy(rules=rules, limits=MAY))
    first.reconcile(says(message, code=1), 1)
    [noted] = [each for change in first.fleet_changes for each in change.suspicions]
    assert (noted.node, noted.namespace, noted.by_message) == ("gpu-2", "ml", True)
    known = FleetLedger(suspicions=(msgspec.structs.replace(noted, namespace="nlp", incident="of-nlp-1"),))
    second = Controller(policy(rules=rules, limits=MAY, fleet=known))
    second.reconcile(says(message, code=1), 1)
    assert quarantined(second) == ["gpu-2"]


def test_a_message_that_comes_twice_in_one_incident_replaces_no_node() -> None:
    controller = Controller(policy(limits=MAY))
    world = says(XID)
    controller.reconcile(world, 1)
    world = world.recreated(10).all_started(15)
    controller.reconcile(world, 16)
    controller.reconcile(world.pod_failed(2, 134, 20, message=XID), 21)
    assert len(controller.triggers) == 2
    assert quarantined(controller) == []


def test_messages_do_not_count_toward_the_threshold_of_exits() -> None:
    """Otherwise anyone who writes a message would have half of a quarantine."""
    known = FleetLedger(suspicions=(suspicion("ml"),))
    controller = Controller(policy(limits=MAY, fleet=known))
    controller.reconcile(says("", code=134), 1)
    assert quarantined(controller) == []
    confirmed = FleetLedger(suspicions=(suspicion("ml"), suspicion("nlp", incident="other-2")))
    controller = Controller(policy(limits=MAY, fleet=confirmed))
    controller.reconcile(says("", code=134), 1)
    assert quarantined(controller) == ["gpu-2"]


# --- what a tenant's own policy may call a sign of the node ---------------------------------------------------------

HEALTHY = Rule("healthy", RuleAction.REPLACE_NODE, When(on_node_conditions=(NodeConditionRule("Ready"),)))
"""Every node of every cluster meets this rule."""
HEALTHY_AND_TEXT = msgspec.structs.replace(
    HEALTHY, when=msgspec.structs.replace(BY_PATTERN.when, on_node_conditions=HEALTHY.when.on_node_conditions)
)


@pytest.mark.parametrize(
    ("namespace", "limits", "replaced"),
    [
        pytest.param("", MAY, True, id="ClusterRecoveryPolicy"),
        pytest.param("ml", MAY, False, id="RecoveryPolicy"),
        pytest.param("ml", TRUSTED, True, id="RecoveryPolicy of a trusted namespace"),
    ],
)
def test_a_condition_that_a_tenant_chose_confirms_no_message(
    namespace: str, limits: FleetLimits, replaced: bool
) -> None:
    controller = Controller(policy(rules=(HEALTHY_AND_TEXT,), limits=limits, namespace=namespace))
    controller.reconcile(says(BAD_DISK), 1)
    assert len(controller.triggers) == 1
    assert quarantined(controller) == (["gpu-2"] if replaced else [])


def test_a_rule_that_every_node_meets_is_bounded_like_any_word_of_a_tenant() -> None:
    """The rule gives no sign of the node. The tenth of the cap applies, and the quarantine ends after a day."""
    first = Controller(policy(rules=(HEALTHY,), limits=WIDE, namespace="ml"))
    first.reconcile(training(8).pod_failed(2, 42, 0), 1)
    given = [(each.node_sign, each.release_at) for change in first.fleet_changes for each in change.quarantine]
    assert given == [("", at(1 + 86_400))] * 4
    full = FleetLedger(quarantined=entries(4, "ml"))
    second = Controller(policy(rules=(HEALTHY,), limits=WIDE, namespace="ml", fleet=full))
    second.reconcile(says("", code=42), 1)
    assert quarantined(second) == []


def test_a_policy_that_took_the_place_of_the_pinned_one_lends_its_rules_no_weight() -> None:
    """The rules are those of the incident's policy, whatever its author. The kind of that policy is no longer known."""
    controller = Controller(policy(rules=(HEALTHY_AND_TEXT,), limits=MAY, namespace="ml"))
    world = says("")
    controller.reconcile(world, 1)
    assert isinstance(controller.policy, Policy)
    controller.policy = msgspec.structs.replace(controller.policy, uid="policy-2", namespace="")
    world = world.recreated(10).all_started(15)
    controller.reconcile(world, 16)
    controller.reconcile(world.pod_failed(2, 134, 20, message=BAD_DISK), 21)
    assert quarantined(controller) == []


# --- how far one namespace gets, and for how long ------------------------------------------------------------------


def entries(count: int, namespace: str, node_sign: str = "") -> tuple[Quarantined, ...]:
    return tuple(
        Quarantined(
            node=f"node-{namespace}-{number}",
            node_uid="u",
            reason="bad",
            since=at(-60),
            incident=f"x-{number}",
            namespace=namespace,
            node_sign=node_sign,
        )
        for number in range(count)
    )


WIDE = FleetLimits(may_cordon=True, max_percent=40)
"""40 of the 100 nodes of the modelled cluster, so 4 for one namespace."""


@pytest.mark.parametrize(
    ("before", "limits", "replaced"),
    [
        pytest.param(entries(3, "ml"), WIDE, True, id="one is left to the namespace"),
        pytest.param(entries(4, "ml"), WIDE, False, id="the namespace has its tenth"),
        pytest.param(entries(9, "nlp"), WIDE, True, id="others have theirs"),
        pytest.param(entries(9, "ml", node_sign="GpuFaultOnNode"), WIDE, True, id="those that their node confirms"),
        pytest.param(
            entries(9, "ml"),
            msgspec.structs.replace(WIDE, trusted_namespaces=frozenset({"ml"})),
            True,
            id="a trusted namespace",
        ),
        pytest.param((), FleetLimits(may_cordon=True, max_percent=5), True, id="one node at least"),
    ],
)
def test_one_namespace_has_at_most_a_tenth_of_the_cap_quarantined_by_its_word(
    before: tuple[Quarantined, ...], limits: FleetLimits, replaced: bool
) -> None:
    rule = on_exit(42, RuleAction.REPLACE_NODE)
    controller = Controller(policy(rules=(rule,), limits=limits, fleet=FleetLedger(quarantined=before)))
    controller.reconcile(says("", code=42), 1)
    assert len(controller.triggers) == 1
    assert quarantined(controller) == (["gpu-2"] if replaced else [])


def test_what_only_a_job_says_ends_after_a_day_where_the_config_names_no_time() -> None:
    rule = on_exit(42, RuleAction.REPLACE_NODE)
    by_word = Controller(policy(rules=(rule,), limits=MAY))
    by_word.reconcile(says("", code=42), 1)
    by_sign = Controller(policy(limits=MAY))
    by_sign.reconcile(with_condition(says(XID), "GpuXidError"), 1)
    told = Controller(policy(rules=(rule,), limits=msgspec.structs.replace(MAY, release_after_seconds=60.0)))
    told.reconcile(says("", code=42), 1)
    ends = [
        (entry.node_sign, entry.release_at)
        for controller in (by_word, by_sign, told)
        for change in controller.fleet_changes
        for entry in change.quarantine
    ]
    assert ends == [("", at(1 + 86_400)), ("GpuFaultOnNode", None), ("", at(1 + 60))]


# --- what counts as a sign of the node -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "sign", "proof"),
    [
        (NodeFacts("n", ready=True), "", ""),
        (
            NodeFacts("n", ready=True, taints=(Taint("nvidia.com/gpu-error", "1", "NoSchedule"),)),
            *["GpuTaintOnNode"] * 2,
        ),
        (NodeFacts("n", ready=True, conditions=(Condition("KernelDeadlock", "True"),)), "NodeBroken", "NodeBroken"),
        (NodeFacts("n", ready=True, conditions=(Condition("KernelDeadlock", "False"),)), "", ""),
        (NodeFacts("n", ready=True, taints=(Taint("karpenter.sh/disrupted", "", "NoSchedule"),)), "", ""),
        (NodeFacts("n", ready=True, conditions=(Condition("GPUClockThrottling", "True"),)), "NodeDegraded", ""),
    ],
)
def test_conditions_and_taints_of_broken_hardware_are_signs(node: NodeFacts, sign: str, proof: str) -> None:
    assert (sign_of_node(node, ()), proof_of_node(node, ())) == (sign, proof)


def test_what_jobs_can_bring_about_confirms_a_message_for_a_day() -> None:
    """Otherwise an XID that the job itself causes would lift the cap of its namespace."""
    controller = Controller(policy(limits=MAY))
    controller.reconcile(with_condition(says(XID), "XIDErrors"), 1)
    [entry] = [each for change in controller.fleet_changes for each in change.quarantine]
    assert (entry.node_sign, entry.release_at) == ("", at(1 + 86_400))


def test_an_unhealthy_device_of_a_pod_on_the_node_is_a_sign() -> None:
    world = training().pod_failed(2, 1, 0)
    [pod] = [each for each in world.snapshot().pods if each.index == 2]
    [container] = pod.containers
    ill = msgspec.structs.replace(pod, containers=(msgspec.structs.replace(container, unhealthy_devices=("gpu-3",)),))
    facts = NodeFacts(pod.node, ready=True)
    assert sign_of_node(facts, (pod,)) == ""
    assert sign_of_node(facts, (ill,)) == "DeviceUnhealthy"
    assert sign_of_node(NodeFacts("elsewhere", ready=True), (ill,)) == ""


@pytest.mark.parametrize("reason", ["OutOfnvidia.com/gpu", "UnexpectedAdmissionError"])
def test_a_pod_that_the_kubelet_refuses_is_no_sign(reason: str) -> None:
    """A user who sets `nodeName` in a pod template can make any node whose devices are taken refuse the pod."""
    [pod] = [each for each in training().pod_failed(2, 1, 0).snapshot().pods if each.index == 2]
    refused = msgspec.structs.replace(pod, phase="Failed", reason=reason, containers=())
    node = NodeFacts(pod.node, ready=True)
    assert (sign_of_node(node, (refused,)), proof_of_node(node, (refused,))) == ("", "")
