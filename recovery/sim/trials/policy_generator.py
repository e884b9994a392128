"""Draws the policies and the RecoveryConfig of a trial."""

import random
from collections.abc import Mapping
from typing import Any

from recovery.sim.trials.failure_signs import GPU_CONDITION, MONITOR_TAINT

NAMESPACES = ("team-a", "team-b")
"""Where the jobs of trials are."""
RULES: tuple[dict[str, object], ...] = (
    {
        "name": "segfault-is-final",
        "when": {"onExitCodes": {"operator": "In", "values": [139]}},
        "action": "FailJob",
    },
    # A trap: survivors of another loss exit with 134, so this code must never end a job by itself.
    {"name": "abort-is-final", "when": {"onExitCodes": {"operator": "In", "values": [134]}}, "action": "FailJob"},
    {"name": "user-error", "when": {"onMessagePattern": "KeyError: '[a-z]+'"}, "action": "FailJob"},
    {"name": "sigterm-is-nothing", "when": {"onExitCodes": {"operator": "In", "values": [143]}}, "action": "Ignore"},
    {"name": "moved", "when": {"onClass": ["PodDisrupted"]}, "action": "RecreateGroup", "charge": False},
    {
        "name": "preempted",
        "when": {
            "onPodConditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]
        },
        "action": "Ignore",
    },
    {
        "name": "bad-gpu",
        "when": {"onNodeConditions": [{"type": GPU_CONDITION, "status": "True", "for": "10s"}]},
        "action": "ReplaceNode",
    },
    {"name": "monitored", "when": {"onNodeTaints": [{"key": MONITOR_TAINT}]}, "action": "RecreateGroup"},
    {"name": "xid", "when": {"onMessagePattern": "Xid .*: (48|79|95),"}, "action": "ReplaceNode", "charge": False},
    {"name": "helpers", "when": {"targetReplicatedJobs": ["helper"]}, "action": "RecreateGroup", "charge": False},
    {
        "name": "hardware",
        "when": {"onClass": ["HardwareFault", "NodeLost"], "onExitCodes": {"operator": "NotIn", "values": [1, 2]}},
        "action": "ReplaceNode",
    },
    {"name": "out-of-memory", "when": {"onClass": ["OutOfMemory"]}, "action": "FailJob", "charge": False},
)
"""The rules that policies choose from, in this order."""
_TRAP = 1
_INTERVAL_SHARE = 0.12
"""The share of the policies that have a `backoff.minInterval`."""


def drawn_policy(chance: random.Random) -> dict[str, object] | None:
    if chance.random() < 0.05:
        return None
    policy: dict[str, object] = {
        "mode": "Observe" if chance.random() < 0.1 else "Enforce",
        "restart": chance.choice(("RecreateGroupOnPodRestart",) * 6 + ("RecreateGroupAfterStart",) * 2 + ("None",)),
        "budget": {
            "limit": chance.choice((1, 2, 10, 10)),
            "window": chance.choice(("30m", "24h")),
            "onExhausted": chance.choice(("Hold", "Suspend", "FailJob")),
        },
        "onTerminalFailure": chance.choice(("Leave", "RecreateJobSet")),
    }
    if chance.random() < 0.4:
        policy["backoff"] = {
            "initial": chance.choice(("0s", "2s", "30s")),
            "factor": 2,
            "max": "2m",
            "resetAfter": chance.choice(("1m", "30m")),
        }
    teardown: dict[str, object] = {}
    if chance.random() < 0.3:
        teardown["graceSeconds"] = chance.choice((1, 5))
    if chance.random() < 0.5:
        teardown["fencing"] = {"mode": "AssumeDead", "assumeDeadAfter": chance.choice(("0s", "10s", "60s"))}
    if teardown:
        policy["teardown"] = teardown
    if chance.random() < 0.6:
        chosen = chance.sample(range(len(RULES)), chance.choice((1, 2, 4)))
        trap = (_TRAP,) if chance.random() < 0.35 else ()
        policy["rules"] = [RULES[number] for number in sorted({*chosen, *trap})]
        policy["settle"] = chance.choice(("0s", "1s", "2s", "5s"))
    if chance.random() < 0.1:
        policy["overrideNative"] = True
    # Draws of its own leave the later draws of the plan as they are.
    waits = random.Random(repr(chance.getstate()))
    if chance.random() < 0.3:
        policy["timeouts"] = {"start": "2m", "rendezvous": "2m"}
    if waits.random() < 0.5:
        policy["whileWaiting"] = waits.choice(("Release", "HoldThenRelease"))
        policy["capacityWait"] = waits.choice(("1m", "3m"))
    return policy


def with_interval(chance: random.Random, policy: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The policy, perhaps with a shortest time between two restarts, longer than most backoffs."""
    drawn, interval = chance.random(), chance.choice(("5m", "15m", "15m", "30m"))
    if policy is None or drawn >= _INTERVAL_SHARE:
        return policy
    return {**policy, "backoff": {**policy.get("backoff", {}), "minInterval": interval}}


def drawn_config(chance: random.Random) -> dict[str, Any]:
    """The RecoveryConfig: with or without each permission, with low or high caps, with a breaker in one of four."""
    quarantine: dict[str, object] = {"maxPercent": chance.choice((5, 30, 30, 60))}
    if chance.random() < 0.4:
        quarantine["maxNodes"] = chance.choice((0, 1, 2))
    if chance.random() < 0.6:
        quarantine["releaseAfter"] = chance.choice(("2m", "10m", "30m"))
    config: dict[str, Any] = {
        "allow": {
            "failJob": chance.random() < 0.7,
            "cordon": chance.random() < 0.7,
            "assumeDead": chance.random() < 0.6,
        },
        "quarantine": quarantine,
        "suspicion": {"suspicions": 2, "within": chance.choice(("30m", "24h"))},
    }
    if chance.random() < 0.25:
        config["circuitBreaker"] = {"recoveries": chance.choice((1, 2, 3)), "within": "1h"}
    return config


def with_trust(chance: random.Random, config: dict[str, Any]) -> dict[str, Any]:
    """The RecoveryConfig, perhaps with trusted namespaces, whose messages alone may quarantine a node."""
    trusted = chance.choice(((), (), ("team-a",), NAMESPACES))
    if not trusted:
        return config
    return {**config, "quarantine": {**config["quarantine"], "trustedNamespaces": list(trusted)}}
