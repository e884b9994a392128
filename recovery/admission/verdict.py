"""The verdict on one object: errors, for which it is refused, and warnings, for which it is not. Pure.

A schema knows only one object and cannot compare durations. What needs more than that is judged here, by the rules that
the controller itself uses (`core.policy.spec`), so that nothing is admitted that it would then refuse to use.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from recovery.admission.objects import JudgedObject
from recovery.core.model.config import CONFIG_NAME, AllowSpec, ConfigFacts, ConfigSpec
from recovery.core.model.rules import RuleAction
from recovery.core.plan.parts import message_of
from recovery.core.policy.spec import FencingMode, Mode, OnExhausted, PolicySpec
from recovery.core.policy.validation import config_problems, problems
from recovery.ports import RECOVERY_CONFIGS

NAMED_MAX = 3
"""How many of the other policies a warning names."""

T = TypeVar("T")


class AdmissionVerdict(msgspec.Struct, frozen=True):
    """Sentences, each beginning with the path of the field that it is about."""

    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class UnreadableError(ValueError):
    """The spec is of another version of the CRD. The message is a sentence with the field's path."""


def judge(judged: JudgedObject, others: Iterable[JudgedObject], config: JudgedObject | None) -> AdmissionVerdict:
    """Judge the object. `others`: its kind in its namespace, maybe including itself. `config` None: there is none."""
    try:
        if judged.resource == RECOVERY_CONFIGS:
            return _about_config(judged)
        spec = _read(judged.spec, PolicySpec)
    except UnreadableError as error:
        return AdmissionVerdict(errors=(str(error),))
    errors = tuple(problems(spec))
    if errors:
        return AdmissionVerdict(errors=errors)
    return AdmissionVerdict(warnings=(*_about_permissions(spec, config), *_about_overlaps(judged, spec, others)))


def _about_config(config: JudgedObject) -> AdmissionVerdict:
    spec = _read(config.spec, ConfigSpec)
    errors = tuple(config_problems(spec))
    pause = ConfigFacts(config.name, config.uid, config.generation, spec).pause
    return AdmissionVerdict(errors, (f"spec.paused: {message_of(pause)}",) if pause is not None and not errors else ())


def _about_permissions(spec: PolicySpec, config: JudgedObject | None) -> Iterator[str]:
    """What the policy requests and the platform does not allow. It is not refused: it may be allowed later."""
    if spec.mode is not Mode.ENFORCE:
        return
    try:
        allow = _read(config.spec, ConfigSpec).allow if config is not None else AllowSpec()
    except UnreadableError:
        allow = AllowSpec()
    if not allow.fail_job:
        if spec.budget.on_exhausted is OnExhausted.FAIL_JOB:
            yield _not_allowed("spec.budget.onExhausted: FailJob", "an exhausted budget will mean Hold", "failJob")
        for path in _rules_with(RuleAction.FAIL_JOB, spec):
            yield _not_allowed(f"{path}.action: FailJob", "the group will be held", "failJob")
    if not allow.cordon:
        for path in _rules_with(RuleAction.REPLACE_NODE, spec):
            yield _not_allowed(
                f"{path}.action: to quarantine nodes", "the group may come back on the same one", "cordon"
            )
    if not allow.assume_dead and spec.teardown.fencing.mode is FencingMode.ASSUME_DEAD:
        yield _not_allowed("spec.teardown.fencing.mode: AssumeDead", "it will mean Proven", "assumeDead")


def _rules_with(action: RuleAction, spec: PolicySpec) -> Iterator[str]:
    """The paths of the rules with that action."""
    return (f"spec.rules[{number}]" for number, rule in enumerate(spec.rules) if rule.action is action)


def _not_allowed(what: str, so: str, permission: str) -> str:
    return (
        f"{what} is not allowed in this cluster, so {so}; "
        f"spec.allow.{permission} of RecoveryConfig {CONFIG_NAME} allows it"
    )


def _about_overlaps(judged: JudgedObject, spec: PolicySpec, others: Iterable[JudgedObject]) -> tuple[str, ...]:
    """A warning about equal selectors. Different ones may match the same workloads too, which is not visible here."""
    same = [other for other in others if other.name != judged.name and not other.deleting and _same(other, spec)]
    if not same:
        return ()
    first = min((judged, *same), key=lambda policy: (policy.created_at, policy.name))
    verb, them = ("has", "the two") if len(same) == 1 else ("have", "them")
    return (
        f"spec.priority: {_named(same)} {verb} the same selector and the same priority, {spec.priority}; "
        f"of {them} {first.name}, the oldest, applies; give each a priority or a selector of its own",
    )


def _same(other: JudgedObject, spec: PolicySpec) -> bool:
    try:
        theirs = _read(other.spec, PolicySpec)
    except UnreadableError:
        return False
    return (theirs.selector, theirs.priority) == (spec.selector, spec.priority)


def _named(policies: Sequence[JudgedObject]) -> str:
    titles = sorted(policy.title for policy in policies)
    more = len(titles) - NAMED_MAX
    return ", ".join(titles[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def _read(spec: Mapping[str, Any], kind: type[T]) -> T:
    """Decode the spec. Raises UnreadableError: the API server may have checked it by another version of the CRD."""
    try:
        return msgspec.convert(spec, kind)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at `$")
        where = "spec" + path.removesuffix("`")
        raise UnreadableError(f"{where}: {what}; the controller is not of this CRD's version") from None
