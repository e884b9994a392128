"""What the schema of a RecoveryPolicy has beyond `core.policy.spec.PolicySpec`: bounds and CEL rules."""

from recovery.core.policy import rule_validation
from recovery.core.policy.spec import ASSUME_DEAD_AFTER_MAX, IN_A_ROW_MAX, IN_PLACE_MAX, SETTLE_MAX
from recovery.crds.schema import RULES, Overlay, Schema
from recovery.crds.schema_keywords import (
    DNS_LABEL,
    DURATION,
    INT32_MAX,
    bounded_duration,
    integer,
    limits,
    longer_than_nothing,
    no_longer_than,
    rule,
    sized,
)

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
                # Another rule reports a text that is not a duration. duration() would only fail on it again.
                # Every object has both fields, but the API server also evaluates the rule for the default `{}`.
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
    "spec.capacityWait": bounded_duration(),
    "spec.backoff.minInterval": bounded_duration(),
    "spec.settle": bounded_duration(no_longer_than(SETTLE_MAX, "no recovery begins while the cause settles")),
    "spec.teardown.fencing.assumeDeadAfter": bounded_duration(
        no_longer_than(ASSUME_DEAD_AFTER_MAX, "the group waits all that time")
    ),
    "spec.teardown.graceSeconds": integer(1, INT32_MAX) | {"nullable": True},
    "spec.drill.maxAge": bounded_duration(longer_than_nothing("every proof would be too old at once")),
    "spec.timeouts.start": bounded_duration(longer_than_nothing("every start would be given up at once")),
    "spec.timeouts.resume": bounded_duration(),
    "spec.timeouts.rendezvous": bounded_duration(longer_than_nothing("every rendezvous would be given up at once")),
    "spec.timeouts.finish": bounded_duration(longer_than_nothing("every pod that ends would be reported at once")),
}


_RULE = "spec.rules[]"
_WHEN = f"{_RULE}.when"
_CONDITION_STATUS: Schema = {"enum": ["True", "False", "Unknown"]}

RULE_SAYS: dict[str, Schema] = {
    "spec.rules": sized(20)
    | {
        RULES: [
            rule(
                "self.all(rule, self.exists_one(other, other.name == rule.name))",
                "every rule must have a name of its own",
            )
        ]
    },
    f"{_RULE}.name": limits(128, pattern=RULE_NAME),
    f"{_WHEN}.onExitCodes": {
        RULES: [
            rule(
                "self.operator != 'In' || !(0 in self.values)",
                "must not be 0 for the In operator",
                field_path=".values",
            )
        ]
    },
    f"{_WHEN}.onExitCodes.containerName": limits(63, pattern=DNS_LABEL),
    f"{_WHEN}.onExitCodes.values": sized(rule_validation.EXIT_CODES_MAX, least=1, unique=True)
    | {RULES: [rule("self.isSorted()", "must be ordered")]},
    f"{_WHEN}.onExitCodes.values[]": integer(-(2**31), INT32_MAX),
    f"{_WHEN}.onPodConditions": sized(20),
    f"{_WHEN}.onPodConditions[].type": limits(316),
    f"{_WHEN}.onPodConditions[].status": _CONDITION_STATUS,
    f"{_WHEN}.onPodConditions[].reason": {"maxLength": 1024},
    f"{_WHEN}.onNodeConditions": sized(20),
    f"{_WHEN}.onNodeConditions[].type": limits(316),
    f"{_WHEN}.onNodeConditions[].status": _CONDITION_STATUS,
    f"{_WHEN}.onNodeConditions[].reason": {"maxLength": 1024},
    f"{_WHEN}.onNodeConditions[].for": bounded_duration(),
    f"{_WHEN}.onNodeTaints": sized(20),
    f"{_WHEN}.onNodeTaints[].key": limits(317),
    f"{_WHEN}.onNodeTaints[].value": {"maxLength": 63},
    f"{_WHEN}.onNodeTaints[].effect": {"enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]},
    f"{_WHEN}.onMessagePattern": limits(512)
    | {RULES: [rule("''.matches(self) ? true : true", "must be a regular expression in RE2 syntax")]},
    f"{_WHEN}.onClass": sized(len(rule_validation.CLASSES), unique=True),
    f"{_WHEN}.onClass[]": {"enum": list(rule_validation.CLASSES)},
    f"{_WHEN}.targetReplicatedJobs": sized(20, unique=True),
    f"{_WHEN}.targetReplicatedJobs[]": limits(63, pattern=DNS_LABEL),
}

_NODES_MAX = 100_000

ELASTIC_SAYS: dict[str, Schema] = {
    "spec.elastic": {
        RULES: [rule("self.minNodes <= self.maxNodes", "must not be larger than maxNodes", field_path=".minNodes")]
    },
    "spec.elastic.minNodes": integer(1, _NODES_MAX),
    "spec.elastic.maxNodes": integer(1, _NODES_MAX),
    "spec.elastic.allowedSizes": sized(100, unique=True),
    "spec.elastic.allowedSizes[]": integer(1, _NODES_MAX),
    "spec.elastic.multipleOf": integer(1, _NODES_MAX),
    "spec.elastic.shrinkAfter": bounded_duration(),
    "spec.elastic.growBackAfter": bounded_duration(
        longer_than_nothing("the group would be restarted with each node that comes")
    ),
}

IN_PLACE_SAYS: dict[str, Schema] = {
    "spec.inPlace.alone": integer(0, IN_A_ROW_MAX),
    "spec.inPlace.maxInARow": integer(0, IN_A_ROW_MAX),
    "spec.timeouts.inPlace": bounded_duration(
        longer_than_nothing("every restart in place would be given up"),
        no_longer_than(IN_PLACE_MAX, "no agent waits for its peers that long"),
    ),
}

POLICY = Overlay(says=SAYS | RULE_SAYS | ELASTIC_SAYS | IN_PLACE_SAYS)
