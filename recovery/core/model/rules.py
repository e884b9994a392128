"""The rules of a policy as data: what a user wants done about which kind of disruption; nothing is judged here.

Names, operators and limits are those of a Job's podFailurePolicy (KEP-3329) and of a JobSet's failurePolicy (KEP-262)
where they overlap. `core.diagnosis.matching` asks them about a disruption; `core.policy.rule_validation` says what is
wrong with them.
"""

from enum import StrEnum

import msgspec


class RuleAction(StrEnum):
    """What the controller does about a disruption that the rule matches.

    RecreateGroup: it recreates all pods of the group. ReplaceNode: it quarantines the node of the pod that failed
    first, then recreates the group, which comes back on other nodes. AvoidNode: it recreates the group, which comes
    back on other nodes, and other jobs may still use that node. Shrink: it recreates the group, and if not all pods
    find a node, the group continues with fewer at once, as `elastic` allows. FailJob: it fails the JobSet, if
    RecoveryConfig allows that, and holds the group otherwise. Ignore: it leaves the failure to Kubernetes, and charges
    no budget.
    """

    RECREATE_GROUP = "RecreateGroup"
    REPLACE_NODE = "ReplaceNode"
    AVOID_NODE = "AvoidNode"
    SHRINK = "Shrink"
    FAIL_JOB = "FailJob"
    IGNORE = "Ignore"


class Operator(StrEnum):
    """In: the exit code is one of `values`. NotIn: it is none of them."""

    IN = "In"
    NOT_IN = "NotIn"


class ExitCodes(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """As in the podFailurePolicy of a Job. Exit code 0 never matches. A sidecar matches only if `containerName` names
    it."""

    operator: Operator
    values: tuple[int, ...]
    """At most 255, in order, without duplicates. Not 0 with In."""
    container_name: str | None = None
    """The container whose exit code counts. None: any training or init container."""


class PodConditionRule(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A condition of the pod that failed first."""

    type: str
    status: str = "True"
    reason: str = ""
    """Empty: any."""


class NodeConditionRule(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A condition of the node of the pod that failed first."""

    type: str
    status: str = "True"
    reason: str = ""
    """Empty: any."""
    held_for: str = msgspec.field(name="for", default="0s")
    """How long the condition must have held."""


class NodeTaintRule(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A taint of the node of the pod that failed first."""

    key: str
    value: str | None = None
    """None: any."""
    effect: str | None = None
    """None: any."""


class When(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """When the rule matches: each field that is set must hold, of a list any item. An empty `when` always matches."""

    on_exit_codes: ExitCodes | None = None
    on_pod_conditions: tuple[PodConditionRule, ...] = ()
    on_node_conditions: tuple[NodeConditionRule, ...] = ()
    on_node_taints: tuple[NodeTaintRule, ...] = ()
    on_message_pattern: str | None = None
    """A regular expression (RE2) that matches the termination message, the waiting reason or the waiting message of a
    container of that pod, or the message of the pod. Only the first 4,096 characters of each are searched."""
    on_class: tuple[str, ...] = ()
    """The class of the disruption, as in `status.incident.class` of the RecoveryGroup."""
    target_replicated_jobs: tuple[str, ...] = ()
    """As in the failurePolicy of a JobSet. Empty: all."""


class Rule(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One rule of `spec.rules`; the first that matches decides."""

    name: str
    """The name of the rule in status, Events and logs."""
    action: RuleAction
    when: When = When()
    charge: bool = True
    """Whether an incident that this rule decides is charged to the budget."""
