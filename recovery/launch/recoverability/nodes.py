"""Checks how long a group waits for a lost node, and which nodes its pods may return to."""

from collections.abc import Iterator

from recovery.launch.findings import Code, LintFinding, Severity
from recovery.launch.launch import Launch
from recovery.launch.recoverability.effective import (
    NODE_MARKED_SECONDS,
    NOT_READY,
    UNREACHABLE,
    is_group,
    patience_seconds,
    size,
    tolerations_for,
)
from recovery.launch.recoverability.words import span
from recovery.launch.views import ManifestToleration, PodTemplate

NODE_LOSS_NOTICED_LATE = Code(
    "node-loss-noticed-late", Severity.WARNING, "pods of a lost node are given up only after minutes"
)
TOLERATES_LOST_NODE = Code("tolerates-lost-node", Severity.WARNING, "pods of a lost node are never given up")
TOLERATES_EVERYTHING = Code("tolerates-everything", Severity.WARNING, "pods come back to cordoned and broken nodes")
CODES = (NODE_LOSS_NOTICED_LATE, TOLERATES_LOST_NODE, TOLERATES_EVERYTHING)

_PATIENCE_MAX_SECONDS = 60
"""Longer than a kubelet, or a switch, takes to restart (policies/runtime-prepared.yaml sets 30)."""
_FIX = (
    f"tolerate {NOT_READY} and {UNREACHABLE}, each with operator: Exists, effect: NoExecute and tolerationSeconds: 30"
)


def check(launch: Launch) -> Iterator[LintFinding]:
    for member in launch.members:
        everything = [each for each in member.template.tolerations if _everything(each)]
        for toleration in everything:
            yield _tolerates_everything(toleration)
        if is_group(launch) and not any(each.effect == "" for each in everything):
            yield from _patience(launch, member.template)


def _everything(toleration: ManifestToleration) -> bool:
    """Whether it matches every taint that keeps new pods off a node. NoExecute alone only keeps running pods there."""
    return not toleration.key and toleration.operator == "Exists" and toleration.effect in {"", "NoSchedule"}


def _tolerates_everything(toleration: ManifestToleration) -> LintFinding:
    stays = ", and stay on a lost one for ever" if not toleration.effect and toleration.seconds is None else ""
    return LintFinding(
        TOLERATES_EVERYTHING,
        toleration.place,
        "operator Exists without a key tolerates every taint: pods come back to a node that was cordoned, or "
        f"quarantined because its GPU is broken (recovery.trainjob.dev/quarantined){stays}",
        "name the taints that they may tolerate: key: nvidia.com/gpu, operator: Exists, effect: NoSchedule",
    )


def _patience(launch: Launch, template: PodTemplate) -> Iterator[LintFinding]:
    lasting = {taint: patience_seconds(template, taint) for taint in (NOT_READY, UNREACHABLE)}
    for_ever = [taint for taint, seconds in lasting.items() if seconds is None]
    if for_ever:
        first = for_ever[0]
        place = next(each.place for each in tolerations_for(template, first) if each.seconds is None)
        yield LintFinding(
            TOLERATES_LOST_NODE,
            place,
            f"a toleration of {' and '.join(for_ever)} without tolerationSeconds holds for ever: a pod whose node is "
            f"lost is never given up, and {size(launch)} wait for it",
            _FIX,
        )
        return
    taint, longest = max(lasting.items(), key=lambda each: each[1] or 0)
    if longest is None or longest <= _PATIENCE_MAX_SECONDS:
        return
    written = [each for each in tolerations_for(template, taint) if each.seconds == longest]
    yield LintFinding(
        NODE_LOSS_NOTICED_LATE,
        written[0].place / "tolerationSeconds" if written else template.place,
        f"a lost node is marked after about {NODE_MARKED_SECONDS} s, and its pods are given up another {longest} s "
        f"later ({'tolerationSeconds' if written else 'the default tolerationSeconds'}): {size(launch)} "
        f"wait{'s' if size(launch) == 'the whole group' else ''} for {span(NODE_MARKED_SECONDS + longest)} before "
        "anything is done",
        _FIX,
    )
