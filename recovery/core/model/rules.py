"""The rules of a policy as data: what a user wants done about which kind of disruption; nothing is judged here.

Names, operators and limits are those of a Job's podFailurePolicy (KEP-3329) and of a JobSet's failurePolicy (KEP-262)
where they overlap. `core.diagnosis.matching` asks them about a disruption; `core.policy.rule_validation` says what is
wrong with them.
"""

from enum import StrEnum

import msgspec


class RuleAction(StrEnum):
    """What is done about a disruption that a rule matches.

    RecreateGroup: all pods of the group are recreated. ReplaceNode: the same, and the suspect's node is quarantined
    first, so that the group comes back on others. AvoidNode: the same, and the group alone comes back on other nodes
    than the suspect's; others may use it. Shrink: all pods are recreated, and if not all of them find a node, the
    group goes on with fewer at once, as `elastic` allows. FailJob: the JobSet is made to fail, where RecoveryConfig
    allows it; else the group is held. Ignore: nothing; it is left to Kubernetes, and costs no budget.
    """

    RECREATE_GROUP = "RecreateGroup"
    REPLACE_NODE = "ReplaceNode"
    AVOID_NODE = "AvoidNode"
    SHRINK = "Shrink"
    FAIL_JOB = "FailJob"
    IGNORE = "Ignore"


class Operator(StrEnum):
    """How the values of `onExitCodes` are meant."""

    IN = "In"
    NOT_IN = "NotIn"


class ExitCodes(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """As in a Job's podFailurePolicy: containers that ended well never match. A container beside the training has to be
    named."""

    operator: Operator
    values: tuple[int, ...]
    """At most 255, ordered, none twice, no 0 with In."""
    container_name: str | None = None
    """The container whose exit code counts. None: the training containers and the init containers."""


class PodConditionRule(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A condition of the suspect pod."""

    type: str
    status: str = "True"
    reason: str = ""
    """Empty: any."""


class NodeConditionRule(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A condition of the node that the suspect pod runs or ran on."""

    type: str
    status: str = "True"
    reason: str = ""
    """Empty: any."""
    held_for: str = msgspec.field(name="for", default="0s")
    """How long the condition must have held."""


class NodeTaintRule(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A taint of the node that the suspect pod runs or ran on."""

    key: str
    value: str | None = None
    """None: any."""
    effect: str | None = None
    """None: any."""


class When(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Fields are ANDed, the items of a list ORed. Nothing at all matches every disruption."""

    on_exit_codes: ExitCodes | None = None
    on_pod_conditions: tuple[PodConditionRule, ...] = ()
    on_node_conditions: tuple[NodeConditionRule, ...] = ()
    on_node_taints: tuple[NodeTaintRule, ...] = ()
    on_message_pattern: str | None = None
    """RE2, looked for in the termination message of the suspect's container, in what it waits for, and in the pod's own
    message; the first 4,096 characters of each."""
    on_class: tuple[str, ...] = ()
    """What the disruption means, as `status.incident.class` of the RecoveryGroup names it."""
    target_replicated_jobs: tuple[str, ...] = ()
    """As in a JobSet's failurePolicy. Empty: every one."""


class Rule(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One rule of `spec.rules`; the first that matches decides."""

    name: str
    """Names the rule in status, Events and logs."""
    action: RuleAction
    when: When = When()
    charge: bool = True
    """Does an incident under this rule cost budget."""
