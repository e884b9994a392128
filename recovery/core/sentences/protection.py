"""Whether a job is protected, and what a person can do about it."""

from collections.abc import Mapping

from recovery.core.model.annotations import PAUSED_ANNOTATION, POLICY_ANNOTATION, TRAINING_CONTAINER_ANNOTATION
from recovery.core.model.config import CONFIG_NAME
from recovery.core.model.ledger import SCHEMA_VERSION
from recovery.core.model.protection import Protection, ProtectionReason
from recovery.core.sentences import render
from recovery.core.sentences.standing import hangs

_NO_SUCH_POLICY = (
    f"The annotation {POLICY_ANNOTATION} names {{policy}}, and no policy has that name.",
    "Create that policy, or remove the annotation.",
)


_NEWER_LEDGER = (
    f"RecoveryGroup {{recovery_group}} has schemaVersion {{schema_version}}, and this version knows {SCHEMA_VERSION}.",
    "Run the controller version that wrote it.",
)


_HELD_BY_BUDGET = (
    "Incident {incident} is Held{until}, because the budget is exhausted.",
    "Run recovery retry {job} to restart the group.",
)


_BROKEN_BY_FORCE_ONLY = (
    "{hangs}",
    "Run recovery restart {job} --reason TEXT --force to restart the group.",
)


_UNDER_WAY = ("Incident {incident} is being recovered. The controller restarts the group again if it has to.", "")


_WORDS: Mapping[ProtectionReason, tuple[str, str]] = {
    ProtectionReason.DELETING: ("The {kind} is being deleted.", ""),
    ProtectionReason.FINISHED: ("The {kind} is complete.", ""),
    ProtectionReason.JOB_SET_FAILED: ("The {kind} has failed.", ""),
    ProtectionReason.SUSPENDED: ("The {kind} is suspended.", ""),
    ProtectionReason.FINISHING: ("A member has succeeded, so the training is finishing.", ""),
    ProtectionReason.NO_POLICY: (
        "No RecoveryPolicy and no ClusterRecoveryPolicy selects the job.",
        "Create a RecoveryPolicy whose spec.selector matches the labels of the job.",
    ),
    ProtectionReason.POLICY_UNUSABLE: ("The policy cannot be used: {detail}.", "Correct that field."),
    ProtectionReason.LEDGER_UNREADABLE: (
        "RecoveryGroup {recovery_group} cannot be read: {detail}.",
        "Correct its status, or delete it; its counts then begin at 0.",
    ),
    ProtectionReason.OBJECT_UNDECODABLE: (
        "{detail}, so the controller does nothing about the job.",
        "Correct that object, or delete it.",
    ),
    ProtectionReason.BROKEN: ("{hangs}", "Run recovery retry {job} to restart the group."),
    ProtectionReason.OBSERVE: ("{policy} only observes.", "Set spec.mode: Enforce to act."),
    ProtectionReason.BREAKER_OPEN: (
        "The circuit breaker is open{because}.",
        "Run recovery reset-breaker to close it.",
    ),
    ProtectionReason.PAUSED_BY_ANNOTATION: (
        f"The annotation {PAUSED_ANNOTATION} pauses the job{{because}}.",
        "Run recovery resume {job} to end the pause.",
    ),
    ProtectionReason.PAUSED_GLOBALLY: (
        "{detail}.",
        f"Set spec.paused: false in RecoveryConfig {CONFIG_NAME}, or correct it if it cannot be read.",
    ),
    ProtectionReason.RESTART_NONE: (
        "{policy} sets restart: None, so it leaves a lost member to Kubernetes.",
        "Set spec.restart: RecreateGroupOnPodRestart to act.",
    ),
    ProtectionReason.RULE_IGNORES_ALL: (
        "Rule {rule} of {policy} ignores every loss that no earlier rule matches.",
        "Add a condition to the rule, or change its action.",
    ),
    ProtectionReason.NODE_SILENT: (
        "Unknown whether the group trains: {detail}.",
        "If the node is off, delete its Node object, or give it the out-of-service taint.",
    ),
    ProtectionReason.HELD: (
        "Incident {incident} is Held{because}.",
        "Run recovery retry {job} to restart the group.",
    ),
    ProtectionReason.INCIDENT_OBSERVED: (
        "Incident {incident} opened while no policy acted, so the controller leaves it alone.",
        "Run recovery restart {job} --reason TEXT if its ranks hang.",
    ),
    ProtectionReason.POD_KEPT_RUNNING: (
        "A failed pod stays Running{because}.",
        "End that container, or delete the pod.",
    ),
    ProtectionReason.BUDGET_EXHAUSTED: (
        "The budget of {policy} is exhausted{until}, so the controller holds the next loss.{still}",
        "Run recovery reset-budget {job}, or raise spec.budget.limit.",
    ),
    ProtectionReason.TRAINING_CONTAINER_UNKNOWN: (
        "No rule selects the container of Job {child_job} that trains, so only the loss of a whole pod counts.",
        f"Name it in the annotation {TRAINING_CONTAINER_ANNOTATION} of the pod template or of the {{kind}}.",
    ),
    ProtectionReason.NO_CONTROLLER: (
        "{policy} would restart the group when it loses a member, but no controller leads{because}.",
        "Start a controller, or read its log if it runs.",
    ),
    ProtectionReason.NO_JOB_SET: ("The {kind} has no JobSet.", ""),
    ProtectionReason.NOT_STARTED: (
        "The group has not run whole yet. Until then its Jobs replace a lost member.",
        "",
    ),
    ProtectionReason.PROTECTED: ("{policy} restarts the group when it loses a member.", ""),
}


def sentence(found: Protection) -> str:
    """Why the job is protected, is not protected, or needs no protection, for a person."""
    return _rendered(_words(found)[0], found)


def remedy(found: Protection) -> str:
    """What a person can do about it. Empty: nothing needs to be done."""
    return _rendered(_words(found)[1], found)


def _words(found: Protection) -> tuple[str, str]:
    if found.reason is ProtectionReason.NO_POLICY and found.policy:
        return _NO_SUCH_POLICY
    if found.reason is ProtectionReason.LEDGER_UNREADABLE and found.schema_version > SCHEMA_VERSION:
        return _NEWER_LEDGER
    if found.reason is ProtectionReason.HELD and not found.detail:
        return _HELD_BY_BUDGET
    if found.reason is ProtectionReason.BROKEN and found.forced:
        return _BROKEN_BY_FORCE_ONLY
    if found.reason is ProtectionReason.PROTECTED and found.incident:
        return _UNDER_WAY
    return _WORDS[found.reason]


def _still(found: Protection) -> str:
    """After which losses the group is restarted although its budget is exhausted. Empty: after none."""
    ways = [f"a loss that rule {name} decides" for name in found.free_rules]
    if found.free_preemptions:
        ways.append("a preemption that no rule matches" if found.free_rules else "a preemption")
    return f" It still restarts the group after {' or '.join(ways)}, which is not charged." if ways else ""


def _rendered(template: str, found: Protection) -> str:
    said = found.detail if found.why is None else render(found.why)
    detail = said.strip().removesuffix(".")
    return template.format(
        kind=found.kind,
        job=found.job,
        policy=found.policy,
        rule=found.rule,
        incident=found.incident,
        child_job=found.child_job,
        recovery_group=found.recovery_group,
        schema_version=found.schema_version,
        detail=detail,
        because=f": {detail}" if detail else "",
        still=_still(found),
        hangs=hangs(found.since, said) if found.since is not None else "The ranks of the group hang.",
        until=f" until {found.until:%Y-%m-%d %H:%M:%S}Z" if found.until is not None else "",
    )
