"""What the schema of a RecoveryPolicy says beyond `core.policy.PolicySpec`: bounds, CEL rules, fields for later.

The whole design is declared, so that a policy written for a later version is never pruned in silence: what is not built
is refused by name. To build a field is to give it to the struct, and to move what stands here from LATER to SAYS.
A field for later has no default, because a default would trip its own refusal.
"""

from recovery.crds.keywords import (
    DNS_LABEL,
    DURATION,
    INT32_MAX,
    bounded_duration,
    integer,
    items,
    later_duration,
    later_switch,
    longer_than_nothing,
    one_of,
    rule,
    text,
)
from recovery.crds.schema import RULES, Later, Overlay, Schema

LABEL_KEY = "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
LABEL_VALUE = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"
RULE_NAME = "^[A-Za-z]([A-Za-z0-9_,:.-]*[A-Za-z0-9_])?$"

SAYS: dict[str, Schema] = {
    "spec.selector.matchLabels": {
        "maxProperties": 64,
        RULES: [
            rule(
                f"self.all(key, key.matches('{LABEL_KEY}'))",
                "every key must be a label key, such as team or example.com/team",
            )
        ],
    },
    "spec.selector.matchLabels.*": {"maxLength": 63, "pattern": LABEL_VALUE},
    "spec.priority": integer(-(2**31), INT32_MAX),
    "spec.budget.limit": integer(0, 10000),
    "spec.budget.window": bounded_duration(longer_than_nothing("no recovery would ever count")),
    "spec.backoff": {
        RULES: [
            rule(
                # What is no duration has been told at its own field; duration() would only fail over it once more.
                # Every object has both; the API server asks the rule about the default `{}` itself, too.
                "!has(self.initial) || !has(self.max)"
                f" || ![self.initial, self.max].all(text, text.matches('{DURATION}'))"
                " || duration(self.initial) <= duration(self.max)",
                "must not be shorter than initial",
                ".max",
            )
        ]
    },
    "spec.backoff.initial": bounded_duration(),
    "spec.backoff.factor": {"minimum": 1, "maximum": 100},
    "spec.backoff.max": bounded_duration(),
    "spec.backoff.resetAfter": bounded_duration(),
    "spec.teardown.graceSeconds": integer(1, INT32_MAX) | {"nullable": True},
    "spec.timeouts.start": bounded_duration(longer_than_nothing("every start would be given up at once")),
    "spec.timeouts.rendezvous": bounded_duration(longer_than_nothing("every rendezvous would be given up at once")),
}


def _condition(**more: Schema) -> Schema:
    return {
        "type": "object",
        "required": ["type"],
        "properties": {
            "type": text(longest=316),
            "status": one_of("True", "False", "Unknown", default="True"),
            **more,
        },
    }


_EXIT_CODES: Schema = {
    "type": "object",
    "required": ["operator", "values"],
    "description": "As in a Job's podFailurePolicy.",
    "properties": {
        "containerName": text(
            "The container whose exit code counts; every one where it is absent.", longest=63, pattern=DNS_LABEL
        ),
        "operator": one_of("In", "NotIn"),
        "values": items(
            integer(-(2**31), INT32_MAX),
            "Exit codes, ordered, none twice, no 0 with In.",
            least=1,
            most=255,
            unique=True,
        )
        | {RULES: [rule("self.isSorted()", "must be ordered")]},
    },
    RULES: [
        rule("self.operator != 'In' || !(0 in self.values)", "must not be 0 for the In operator", field_path=".values")
    ],
}

_TAINT: Schema = {
    "type": "object",
    "required": ["key"],
    "properties": {
        "key": text(longest=317),
        "value": text(longest=63, shortest=0),
        "effect": one_of("NoSchedule", "PreferNoSchedule", "NoExecute"),
    },
}

_WHEN: Schema = {
    "type": "object",
    "description": "Fields are ANDed, the items of a list ORed. Nothing matches every disruption.",
    "properties": {
        "onExitCodes": _EXIT_CODES,
        "onPodConditions": items(
            _condition(reason=text(longest=1024)), "As in a Job's podFailurePolicy, and the reason too.", most=20
        ),
        "onNodeConditions": items(
            _condition(**{"for": later_duration("How long the condition must have held.")}),
            "Conditions of the node that the suspect pod runs or ran on.",
            most=20,
        ),
        "onNodeTaints": items(_TAINT, "Taints of the node that the suspect pod runs or ran on.", most=20),
        "onMessagePattern": text("RE2, looked for in the termination message of the suspect's container.", longest=512)
        | {RULES: [rule("''.matches(self) ? true : true", "must be a regular expression in RE2 syntax")]},
        "onClass": items(
            text(longest=63),
            "Classes of disruptions, as RecoveryGroup.status.incident.class names them.",
            most=12,
            unique=True,
        ),
        "targetReplicatedJobs": items(
            text(longest=63, pattern=DNS_LABEL),
            "As in a JobSet's failurePolicy; every one where it is absent.",
            most=20,
            unique=True,
        ),
    },
}

_RULE: Schema = {
    "type": "object",
    "required": ["name", "action"],
    "properties": {
        "name": text("Names the rule in status, Events and logs.", longest=128, pattern=RULE_NAME),
        "when": _WHEN,
        "action": one_of("RecreateGroup", "ReplaceNode", "RestartInPlace", "Shrink", "FailJob", "Ignore"),
        "charge": {"type": "boolean", "default": True, "description": "Does an incident under this rule cost budget."},
    },
}

_ELASTIC: Schema = {
    "type": "object",
    "description": "Its presence makes the group elastic: it may go on with fewer nodes. Not built yet.",
    "required": ["minNodes", "maxNodes"],
    "properties": {
        "minNodes": integer(1, 100000),
        "maxNodes": integer(1, 100000),
        "allowedSizes": items(
            integer(1, 100000), "Numbers of nodes; every one where it is absent.", most=100, unique=True
        ),
        "growBackAfter": later_duration("How long it stays small at least.", default="5m"),
    },
    RULES: [rule("self.minNodes <= self.maxNodes", "must not be larger than maxNodes", field_path=".minNodes")],
}

_FENCING: Schema = {
    "type": "object",
    "description": "When a pod on a lost node counts as dead. Not built yet.",
    "properties": {
        "mode": one_of("Proven", "AssumeDead", default="Proven"),
        "assumeDeadAfter": later_duration("From when the node was lost.", default="60s"),
    },
}

LATER: dict[str, Later] = {
    "spec.rules": Later(
        items(_RULE, "The first rule that matches decides; where none does, `restart`. Not built yet.", most=20)
        | {
            RULES: [
                rule(
                    "self.all(rule, self.exists_one(other, other.name == rule.name))",
                    "every rule must have a name of its own",
                )
            ]
        }
    ),
    "spec.overrideNative": Later(
        later_switch("Act where the Job's or the JobSet's own policy decides, instead of standing aside."),
        refused=False,
    ),
    "spec.elastic": Later(_ELASTIC),
    "spec.settle": Later(later_duration("How long a verdict on the cause waits for late evidence. Not built yet.")),
    "spec.teardown.fencing": Later(_FENCING),
    "spec.timeouts.resume": Later(later_duration("From all ranks joined until the first new step. Not built yet.")),
}

POLICY = Overlay(says=SAYS, later=LATER)
