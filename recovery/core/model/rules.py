"""The rules of a policy as data: which action a user wants for which kind of disruption.

Names, operators and limits are those of a Job's podFailurePolicy (KEP-3329) and of a JobSet's failurePolicy (KEP-262)
where they overlap. `core.diagnosis.matching` matches them with a disruption. `core.policy.rule_validation` reports what
is wrong with them.
"""

from enum import StrEnum

import msgspec


class RuleAction(StrEnum):
    """What the controller does about a disruption that the rule matches.

    RecreateGroup: it recreates all pods of the group. ReplaceNode: it quarantines the nodes of the pods that the
    rule matches, then recreates the group on other nodes. AvoidNode: it recreates the group on other nodes, and other
    jobs may still use those nodes. Shrink: it recreates the group, and if not all pods find a node, the group continues
    with fewer nodes at once, as `elastic` allows. RestartInPlace: the agents start the processes of the group again in
    their pods where that helps, and otherwise the group is recreated. FailJob: it fails the JobSet if RecoveryConfig
    allows that, and otherwise holds the group. Ignore: it leaves the failure to Kubernetes, and charges no budget.
    """

    RECREATE_GROUP = "RecreateGroup"
    REPLACE_NODE = "ReplaceNode"
    AVOID_NODE = "AvoidNode"
    SHRINK = "Shrink"
    FAIL_JOB = "FailJob"
    RESTART_IN_PLACE = "RestartInPlace"
    IGNORE = "Ignore"


class Operator(StrEnum):
    """In: the exit code is one of `values`. NotIn: it is none of them."""

    IN = "In"
    NOT_IN = "NotIn"


class ExitCodes(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Exit codes, as in the podFailurePolicy of a Job. Exit code 0 never matches. A sidecar matches only if
    `containerName` names it."""

    operator: Operator
    values: tuple[int, ...]
    """At most 255 exit codes, in order, without duplicates. 0 is not allowed with In."""
    container_name: str | None = None
    """The container whose exit code counts. None: any training or init container."""


class PodConditionRule(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A condition of the pod that failed first."""

    type: str
    status: str = "True"
    reason: str = ""
    """Reason of the condition. Empty: any reason."""


class NodeConditionRule(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A condition of the node of the pod that failed first."""

    type: str
    status: str = "True"
    reason: str = ""
    """Reason of the condition. Empty: any reason."""
    held_for: str = msgspec.field(name="for", default="0s")
    """How long the condition must have had this status."""


class NodeTaintRule(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A taint of the node of the pod that failed first."""

    key: str
    value: str | None = None
    """Value of the taint. None: any value."""
    effect: str | None = None
    """Effect of the taint. None: any effect."""


class When(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """When the rule matches. Every field that is set must match. A list matches if any item does. An empty `when`
    always matches."""

    on_exit_codes: ExitCodes | None = None
    on_pod_conditions: tuple[PodConditionRule, ...] = ()
    on_node_conditions: tuple[NodeConditionRule, ...] = ()
    on_node_taints: tuple[NodeTaintRule, ...] = ()
    on_message_pattern: str | None = None
    """A regular expression (RE2) that matches the termination message, the waiting reason or the waiting message of a
    container of the pod that failed first, or the message of that pod. Only the first 4,096 characters of each are
    searched."""
    on_class: tuple[str, ...] = ()
    """The class of the disruption, as in `status.incident.class` of the RecoveryGroup."""
    target_replicated_jobs: tuple[str, ...] = ()
    """The ReplicatedJobs that the rule applies to, as in the failurePolicy of a JobSet. Empty: all."""


class Rule(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One rule of `spec.rules`. The first rule that matches decides."""

    name: str
    """The name of the rule in status, Events and logs."""
    action: RuleAction
    when: When = When()
    charge: bool = True
    """Whether an incident that this rule decides is charged to the budget."""
