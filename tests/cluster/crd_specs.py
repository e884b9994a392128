"""Specs that the API server refuses, each with the field and the message, and specs that it keeps."""

from typing import Any

BAD_SPECS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown mode": ({"mode": "enforce"}, 'spec.mode: Unsupported value: "enforce": supported values: "Observe"'),
    "unknown restart": ({"restart": "Sometimes"}, 'spec.restart: Unsupported value: "Sometimes"'),
    "unknown field": ({"budjet": {"limit": 3}}, 'unknown field "spec.budjet"'),
    "unknown nested field": ({"budget": {"limits": 3}}, 'unknown field "spec.budget.limits"'),
    "negative limit": ({"budget": {"limit": -1}}, "spec.budget.limit in body should be greater than or equal to 0"),
    "limit beyond bounds": ({"budget": {"limit": 10001}}, "spec.budget.limit in body should be less than or equal to"),
    "limit in words": ({"budget": {"limit": "ten"}}, "spec.budget.limit in body must be of type integer"),
    "priority beyond int32": ({"priority": 2**31}, "spec.priority"),
    "window in words": (
        {"budget": {"window": "1 day"}},
        "spec.budget.window: Invalid value: .*not a duration; write it",
    ),
    "window in days": ({"budget": {"window": "7d"}}, "spec.budget.window: Invalid value: .*not a duration; write it"),
    "window of nothing": ({"budget": {"window": "0h0m"}}, "spec.budget.window: Invalid value: .*longer than 0s"),
    "start in fractions": ({"timeouts": {"start": "1.5h"}}, "spec.timeouts.start: Invalid value: .*not a duration"),
    "start of nothing": ({"timeouts": {"start": "0s"}}, "spec.timeouts.start: Invalid value: .*longer than 0s"),
    "start empty": ({"timeouts": {"start": ""}}, "spec.timeouts.start in body should be at least 2 chars"),
    "grace that forces": (
        {"teardown": {"graceSeconds": 0}},
        "spec.teardown.graceSeconds in body should be greater than",
    ),
    "label key": ({"selector": {"matchLabels": {"a b": "x"}}}, "spec.selector.matchLabels: .*must be a label key"),
    "label value": ({"selector": {"matchLabels": {"a": "x y"}}}, "spec.selector.matchLabels.a"),
    "a rule without a name": ({"rules": [{"action": "Ignore"}]}, r"spec.rules\[0\].name: Required value"),
    "a rule without an action": ({"rules": [{"name": "a"}]}, r"spec.rules\[0\].action: Required value"),
    "a rule's name": (
        {"rules": [{"name": "a b", "action": "Ignore"}]},
        r"spec.rules\[0\].name in body should match",
    ),
    "rules of one name": (
        {"rules": [{"name": "a", "action": "Ignore"}, {"name": "a", "action": "FailJob"}]},
        "spec.rules: Invalid value: .*every rule must have a name of its own",
    ),
    "too many rules": (
        {"rules": [{"name": f"a{number}", "action": "Ignore"} for number in range(21)]},
        "spec.rules: Too many: 21: must have at most 20 items",
    ),
    "unknown action": (
        {"rules": [{"name": "a", "action": "Restart"}]},
        r'spec.rules\[0\].action: Unsupported value: "Restart": supported values: "RecreateGroup"',
    ),
    "a restart in place that takes too long": (
        {"timeouts": {"inPlace": "11m"}},
        "spec.timeouts.inPlace: Invalid value: .*must not be longer than 10m",
    ),
    "backoff in words": (
        {"backoff": {"initial": "a bit"}},
        "spec.backoff.initial: Invalid value: .*not a duration; write it",
    ),
    "longest backoff in words": ({"backoff": {"max": "1d"}}, "spec.backoff.max: Invalid value: .*not a duration"),
    "reset in words": ({"backoff": {"resetAfter": "5"}}, "spec.backoff.resetAfter in body should be at least 2 chars"),
    "longest backoff below the first": (
        {"backoff": {"initial": "1m30s", "max": "89999ms"}},
        "spec.backoff.max: Invalid value: .*must not be shorter than initial",
    ),
    "first backoff above the default of the longest": (
        {"backoff": {"initial": "10m"}},
        "spec.backoff.max: Invalid value: .*must not be shorter than initial",
    ),
    "factor below one": ({"backoff": {"factor": 0.5}}, "spec.backoff.factor in body should be greater than or equal"),
    "factor beyond bounds": ({"backoff": {"factor": 101}}, "spec.backoff.factor in body should be less than or equal"),
    "elastic without sizes": ({"elastic": {}}, "spec.elastic.minNodes: Required value"),
    "elastic sizes the wrong way round": (
        {"elastic": {"minNodes": 5, "maxNodes": 4}},
        "spec.elastic.minNodes: Invalid value: .*must not be larger than maxNodes",
    ),
    "no nodes at all": (
        {"elastic": {"minNodes": 0, "maxNodes": 4}},
        "spec.elastic.minNodes in body should be greater than or equal to 1",
    ),
    "growth at once": (
        {"elastic": {"minNodes": 1, "maxNodes": 4, "growBackAfter": "0s"}},
        "spec.elastic.growBackAfter: Invalid value: .*must be longer than 0s",
    ),
    "shrinking in words": (
        {"elastic": {"minNodes": 1, "maxNodes": 4, "shrinkAfter": "soon"}},
        "spec.elastic.shrinkAfter: Invalid value: .*not a duration",
    ),
    "settle in words": ({"settle": "a bit"}, "spec.settle: Invalid value: .*not a duration; write it"),
    "settle beyond bounds": ({"settle": "30s1ms"}, "spec.settle: Invalid value: .*must not be longer than 30s"),
    "fencing": (
        {"teardown": {"fencing": {"mode": "Assume"}}},
        'spec.teardown.fencing.mode: Unsupported value: "Assume"',
    ),
    "assumed in words": (
        {"teardown": {"fencing": {"assumeDeadAfter": "soon"}}},
        "spec.teardown.fencing.assumeDeadAfter: Invalid value: .*not a duration",
    ),
    "assumed beyond bounds": (
        {"teardown": {"fencing": {"assumeDeadAfter": "24h1s"}}},
        "spec.teardown.fencing.assumeDeadAfter: Invalid value: .*must not be longer than 24h",
    ),
    "rendezvous in words": (
        {"timeouts": {"rendezvous": "soon"}},
        "spec.timeouts.rendezvous: Invalid value: .*duration",
    ),
    "rendezvous of nothing": ({"timeouts": {"rendezvous": "0s"}}, "spec.timeouts.rendezvous: Invalid value: .*than 0s"),
    "resume in words": ({"timeouts": {"resume": "soon"}}, "spec.timeouts.resume: Invalid value: .*duration"),
    "overrideNative in words": ({"overrideNative": "yes"}, "spec.overrideNative in body must be of type boolean"),
    "unknown way with a native Ignore": ({"onNativeIgnore": "Hang"}, 'spec.onNativeIgnore: Unsupported value: "Hang"'),
    "unknown terminal failure": ({"onTerminalFailure": "Again"}, 'spec.onTerminalFailure: Unsupported value: "Again"'),
    "unknown end of the budget": (
        {"budget": {"onExhausted": "Stop"}},
        'spec.budget.onExhausted: Unsupported value: "Stop"',
    ),
}


BAD_CONFIGS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown field": ({"pause": True}, 'unknown field "spec.pause"'),
    "paused in words": ({"paused": "yes"}, "spec.paused in body must be of type boolean"),
    "long reason": ({"pauseReason": "x" * 1025}, "spec.pauseReason: Too long"),
    "cordon in words": ({"allow": {"cordon": "yes"}}, "spec.allow.cordon in body must be of type boolean"),
    "more than all nodes": (
        {"quarantine": {"maxPercent": 101}},
        "spec.quarantine.maxPercent in body should be less than or equal to 100",
    ),
    "fewer than no nodes": (
        {"quarantine": {"maxNodes": -1}},
        "spec.quarantine.maxNodes in body should be greater than or equal to 0",
    ),
    "release in words": (
        {"quarantine": {"releaseAfter": "1 day"}},
        "spec.quarantine.releaseAfter: Invalid value: .*not a duration",
    ),
    "release at once": (
        {"quarantine": {"releaseAfter": "0s"}},
        "spec.quarantine.releaseAfter: Invalid value: .*longer than 0s",
    ),
    "suspicion of everything": (
        {"suspicion": {"suspicions": 0}},
        "spec.suspicion.suspicions in body should be greater than or equal to 1",
    ),
    "suspicion for nothing": (
        {"suspicion": {"within": "0m"}},
        "spec.suspicion.within: Invalid value: .*longer than 0s",
    ),
    "a breaker of nothing": ({"circuitBreaker": {}}, "spec.circuitBreaker.recoveries: Required value"),
    "a breaker that is open": (
        {"circuitBreaker": {"recoveries": 0}},
        "spec.circuitBreaker.recoveries in body should be greater than or equal to 1",
    ),
    "a breaker in words": (
        {"circuitBreaker": {"recoveries": 5, "within": "a day"}},
        "spec.circuitBreaker.within: Invalid value: .*not a duration",
    ),
}


# The limits of a rule. They are those of Kubernetes where it has such a rule.
BAD_WHENS: dict[str, tuple[dict[str, Any], str]] = {
    "zero with In": (
        {"onExitCodes": {"operator": "In", "values": [0, 1]}},
        r"onExitCodes.values: Invalid value: must not be 0 for the In operator",
    ),
    "unordered": (
        {"onExitCodes": {"operator": "NotIn", "values": [2, 1]}},
        "onExitCodes.values: Invalid value: must be ordered",
    ),
    "twice": ({"onExitCodes": {"operator": "In", "values": [1, 1]}}, r"onExitCodes.values\[1\]: Duplicate value: 1"),
    "too many": ({"onExitCodes": {"operator": "In", "values": list(range(1, 257))}}, "onExitCodes.values: Too many"),
    "operator": ({"onExitCodes": {"operator": "Is", "values": [1]}}, 'operator: Unsupported value: "Is"'),
    "conditions": ({"onPodConditions": [{"type": "Ready"}] * 21}, "onPodConditions: Too many"),
    "no codes": (
        {"onExitCodes": {"operator": "In", "values": []}},
        "onExitCodes.values in body should have at least 1",
    ),
    "container": (
        {"onExitCodes": {"operator": "In", "values": [1], "containerName": "Node"}},
        "onExitCodes.containerName in body should match",
    ),
    "a condition without a type": (
        {"onPodConditions": [{"status": "True"}]},
        r"onPodConditions\[0\].type: Required value",
    ),
    "a status": (
        {"onNodeConditions": [{"type": "GpuUnhealthy", "status": "Yes"}]},
        r'onNodeConditions\[0\].status: Unsupported value: "Yes"',
    ),
    "for in words": (
        {"onNodeConditions": [{"type": "GpuUnhealthy", "for": "a while"}]},
        r"onNodeConditions\[0\].for: Invalid value: .*not a duration",
    ),
    "effect": (
        {"onNodeTaints": [{"key": "a", "effect": "NoRun"}]},
        r'onNodeTaints\[0\].effect: Unsupported value: "NoRun"',
    ),
    "class": ({"onClass": ["Hardware"]}, r'onClass\[0\]: Unsupported value: "Hardware": supported values: "NodeLost"'),
    "no class for a person's wish": ({"onClass": ["Manual"]}, r'onClass\[0\]: Unsupported value: "Manual"'),
    "class twice": ({"onClass": ["Killed", "Killed"]}, r'onClass\[1\]: Duplicate value: "Killed"'),
    "lookaround": (
        {"onMessagePattern": "a(?!b)"},
        "onMessagePattern: Invalid value: .*regular expression in RE2 syntax",
    ),
    "pattern": ({"onMessagePattern": "("}, "onMessagePattern: Invalid value: .*regular expression in RE2 syntax"),
}


EVERY_REQUIREMENT: dict[str, Any] = {
    "onExitCodes": {"containerName": "node", "operator": "NotIn", "values": [0, 42, 137]},
    "onPodConditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}],
    "onNodeConditions": [{"type": "GpuUnhealthy", "for": "1m30s"}, {"type": "Ready", "status": "Unknown"}],
    "onNodeTaints": [{"key": "example.com/gpu", "value": "", "effect": "NoSchedule"}],
    "onMessagePattern": r"(?i)xid\s+(79|48)",
    "onClass": ["HardwareFault", "Unknown"],
    "targetReplicatedJobs": ["node", "launcher"],
}


GOOD_SPECS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "everything that is built": {
        "selector": {"matchLabels": {"example.com/team": "llm", "tier": ""}},
        "priority": -3,
        "mode": "Enforce",
        "restart": "None",
        "rules": [
            {"name": "everything", "action": "FailJob", "charge": False, "when": EVERY_REQUIREMENT},
            {"name": "bad-gpu", "action": "ReplaceNode", "when": {"onNodeTaints": [{"key": "example.com/gpu"}]}},
            {"name": "odd-node", "action": "AvoidNode", "when": {"onClass": ["Unknown"]}},
            {"name": "preempted", "action": "Shrink", "when": {"onClass": ["PodDisrupted"]}},
            {"name": "the-rest", "action": "RecreateGroup"},
        ],
        "overrideNative": True,
        "onNativeIgnore": "StandAside",
        "settle": "30s",
        "onTerminalFailure": "RecreateJobSet",
        "budget": {"limit": 0, "window": "1h30m", "onExhausted": "FailJob"},
        "backoff": {"initial": "1m500ms", "factor": 1.5, "max": "1h0m0s5ms", "resetAfter": "2h"},
        "teardown": {"graceSeconds": 5, "fencing": {"mode": "AssumeDead", "assumeDeadAfter": "0s"}},
        "timeouts": {"start": "500ms", "rendezvous": "99999h9999999m"},
        "elastic": {
            "minNodes": 2,
            "maxNodes": 16,
            "allowedSizes": [2, 8, 16],
            "multipleOf": 2,
            "shrinkAfter": "0s",
            "growBackAfter": "1h",
            "charge": True,
        },
    },
    "elastic, the rest by default": {"elastic": {"minNodes": 1, "maxNodes": 100000}},
    "not elastic": {"elastic": None},
    "no rules": {"rules": []},
    "the default of a rule": {"rules": [{"name": "a", "action": "RecreateGroup"}], "settle": "0s"},
    "grace of the pod": {"teardown": {"graceSeconds": None}},
    "no backoff": {"backoff": {"initial": "0s"}},
    "a steady backoff": {"backoff": {"initial": "60s", "factor": 1, "max": "1m"}},
    "after start, then suspended": {"restart": "RecreateGroupAfterStart", "budget": {"onExhausted": "Suspend"}},
    "platform first": {"restart": "RecreateGroupOnPodRestart", "onTerminalFailure": "Leave"},
}
