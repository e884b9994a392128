"""Validates a RecoveryPolicy or a RecoveryConfig beyond what a schema can. Each problem starts with its path."""

from collections.abc import Iterator

from recovery.core.model.config import ConfigSpec
from recovery.core.model.durations import parse_duration, unreadable
from recovery.core.model.rules import RuleAction
from recovery.core.policy import rule_validation
from recovery.core.policy.spec import (
    ASSUME_DEAD_AFTER_MAX,
    IN_A_ROW_MAX,
    IN_PLACE_MAX,
    SETTLE_MAX,
    ElasticSpec,
    PolicySpec,
)


def problems(spec: PolicySpec) -> Iterator[str]:
    """One sentence for each problem of the spec: the path of the field, what is wrong, and how to fix it."""
    if spec.budget.limit < 0:
        yield f"spec.budget.limit: {spec.budget.limit} is negative; 0 allows only recoveries that use no budget"
    yield from _no_time(spec.budget.window, "spec.budget.window", "no recovery would ever count")
    yield from _no_time(spec.timeouts.start, "spec.timeouts.start", "every start would be given up at once")
    grace = spec.teardown.grace_seconds
    if grace is not None and grace < 1:
        yield f"spec.teardown.graceSeconds: {grace} would force-delete pods that may still write; use 1 or more"
    yield from _no_time(
        spec.timeouts.rendezvous, "spec.timeouts.rendezvous", "every rendezvous would be given up at once"
    )
    yield from unreadable(spec.timeouts.resume, "spec.timeouts.resume")
    yield from _no_time(spec.timeouts.finish, "spec.timeouts.finish", "every pod that ends would be reported at once")
    yield from unreadable(spec.capacity_wait, "spec.capacityWait")
    backoff = spec.backoff
    wrong = (*unreadable(backoff.initial, "spec.backoff.initial"), *unreadable(backoff.max, "spec.backoff.max"))
    yield from wrong
    if not wrong and parse_duration(backoff.max, "") < parse_duration(backoff.initial, ""):
        yield f"spec.backoff.max: {backoff.max} is shorter than spec.backoff.initial, {backoff.initial}"
    if not 1 <= backoff.factor <= 100:
        yield f"spec.backoff.factor: {backoff.factor} is not between 1 and 100"
    yield from unreadable(backoff.reset_after, "spec.backoff.resetAfter")
    yield from unreadable(backoff.min_interval, "spec.backoff.minInterval")
    yield from rule_validation.problems(spec.rules, "spec.rules")
    yield from _of_shrink_rules(spec)
    yield from _of_in_place(spec)
    if spec.elastic is not None:
        yield from _of_elastic(spec.elastic)
    if spec.drill.max_age is not None:
        yield from _no_time(spec.drill.max_age, "spec.drill.maxAge", "every proof would be too old at once")
    yield from _longer_than(SETTLE_MAX, spec.settle, "spec.settle", "no recovery begins while the cause settles")
    yield from _longer_than(
        ASSUME_DEAD_AFTER_MAX,
        spec.teardown.fencing.assume_dead_after,
        "spec.teardown.fencing.assumeDeadAfter",
        "the group waits all that time",
    )


def _of_in_place(spec: PolicySpec) -> Iterator[str]:
    in_place = spec.in_place
    for name, value in (("alone", in_place.alone), ("maxInARow", in_place.max_in_a_row)):
        if not 0 <= value <= IN_A_ROW_MAX:
            yield f"spec.inPlace.{name}: {value} is not between 0 and {IN_A_ROW_MAX}"
    yield from _no_time(spec.timeouts.in_place, "spec.timeouts.inPlace", "every restart in place would be given up")
    yield from _longer_than(
        IN_PLACE_MAX, spec.timeouts.in_place, "spec.timeouts.inPlace", "no agent waits for its peers that long"
    )
    for number, rule in enumerate(spec.rules):
        if rule.action is RuleAction.RESTART_IN_PLACE and not in_place.enabled:
            yield (
                f"spec.rules[{number}].action: RestartInPlace needs spec.inPlace.enabled: true, which lets the agents "
                "start processes again; add it, or use RecreateGroup"
            )


def _of_shrink_rules(spec: PolicySpec) -> Iterator[str]:
    if spec.elastic is not None:
        return
    for number, rule in enumerate(spec.rules):
        if rule.action is RuleAction.SHRINK:
            yield (
                f"spec.rules[{number}].action: Shrink needs spec.elastic, which says how far; add spec.elastic, or use "
                "RecreateGroup"
            )


def _of_elastic(elastic: ElasticSpec) -> Iterator[str]:
    path, least, most = "spec.elastic", elastic.min_nodes, elastic.max_nodes
    for name, value in (("minNodes", least), ("maxNodes", most), ("multipleOf", elastic.multiple_of)):
        if value < 1:
            yield f"{path}.{name}: {value} is less than 1"
    if least > most:
        yield f"{path}.minNodes: {least} is larger than maxNodes, {most}"
    for number, size in enumerate(elastic.allowed_sizes):
        if not least <= size <= most:
            yield f"{path}.allowedSizes[{number}]: {size} is not between minNodes, {least}, and maxNodes, {most}"
        elif size % max(elastic.multiple_of, 1):
            yield f"{path}.allowedSizes[{number}]: {size} is no multiple of multipleOf, {elastic.multiple_of}"
    step = max(elastic.multiple_of, 1)
    if not elastic.allowed_sizes and 1 <= least <= most and (most // step) * step < least:
        yield f"{path}.multipleOf: no multiple of {step} lies between minNodes, {least}, and maxNodes, {most}"
    yield from unreadable(elastic.shrink_after, f"{path}.shrinkAfter")
    yield from _no_time(elastic.grow_back_after, f"{path}.growBackAfter", "the group would be restarted with each node")


def config_problems(spec: ConfigSpec) -> Iterator[str]:
    """One sentence for each problem of the RecoveryConfig's spec, as in `problems`."""
    quarantine, suspicion, breaker = spec.quarantine, spec.suspicion, spec.circuit_breaker
    if quarantine.max_nodes is not None and quarantine.max_nodes < 0:
        yield f"spec.quarantine.maxNodes: {quarantine.max_nodes} is negative; 0 allows no quarantine at all"
    if not 0 <= quarantine.max_percent <= 100:
        yield f"spec.quarantine.maxPercent: {quarantine.max_percent} is not between 0 and 100"
    if quarantine.release_after is not None:
        yield from _no_time(
            quarantine.release_after, "spec.quarantine.releaseAfter", "every node would be released at once"
        )
    if suspicion.suspicions < 1:
        yield f"spec.suspicion.suspicions: {suspicion.suspicions} would suspect every node; use 1 or more"
    yield from _no_time(suspicion.within, "spec.suspicion.within", "no suspicion would ever count")
    if spec.incidents.max_per_namespace < 1:
        most = spec.incidents.max_per_namespace
        yield f"spec.incidents.maxPerNamespace: {most} would keep no record of any incident; use 1 or more"
    yield from _no_time(spec.incidents.ttl, "spec.incidents.ttl", "every record would be deleted at once")
    if spec.drills.per_job_and_day < 0:
        yield f"spec.drills.perJobAndDay: {spec.drills.per_job_and_day} is no number of drills; use 0 or more"
    if spec.drills.max_per_namespace < 1:
        most = spec.drills.max_per_namespace
        yield f"spec.drills.maxPerNamespace: {most} would keep no record of any drill; use 1 or more"
    yield from _no_time(spec.drills.ttl, "spec.drills.ttl", "every drill would be deleted at its end")
    if breaker is None:
        return
    if breaker.recoveries < 1:
        yield (
            f"spec.circuitBreaker.recoveries: {breaker.recoveries} would open the breaker at once; use 1 or more, "
            "or spec.paused to stop all recoveries"
        )
    yield from _no_time(breaker.within, "spec.circuitBreaker.within", "no recovery would ever count")


def _no_time(text: str, path: str, otherwise: str) -> Iterator[str]:
    """The problem of a duration that is invalid or zero. `otherwise`: what would happen with zero."""
    wrong = unreadable(text, path)
    yield from wrong
    if not wrong and not parse_duration(text, path):
        yield f"{path}: must be longer than 0s, or {otherwise}"


def _longer_than(longest: str, text: str, path: str, because: str) -> Iterator[str]:
    """The problem of a duration that is invalid or too long. `because`: why that is too long."""
    wrong = unreadable(text, path)
    yield from wrong
    if not wrong and parse_duration(text, path) > parse_duration(longest, path):
        yield f"{path}: {text} is longer than {longest}, and {because}; use {longest} or less"
