"""Classifies evidence as a Disruption: what the loss means, where it began, and which evidence is only a consequence.

When one rank fails, the others fail because of it: their connections are reset at once, their collectives time out
minutes later, their launchers exit without a message. All of that is evidence, but it is a cause only if there is no
other one.
"""

import re
from datetime import datetime, timedelta
from itertools import groupby

import msgspec

from recovery.core.diagnosis.evidence import Evidence, LossKind
from recovery.core.diagnosis.signature import EXITED, MESSAGE_MAX, DisruptionClass, Signature
from recovery.core.diagnosis.signature_table import BY_NAME, signature_of, xid_of
from recovery.core.model.facts import ExitFacts, JobFacts, Snapshot
from recovery.core.model.ledger import Suspect

__all__ = ["Disruption", "DisruptionClass", "Finding", "cause_of", "classify", "normalised_message", "step_in"]

MAX_SUSPECTS = 8

FOLLOWS_WITHIN = timedelta(seconds=30)
"""An exit that nothing explains is a consequence of another loss if it follows that loss within this time."""

_ABORTED = 128 + 6
"""The exit code with which NCCL's watchdog ends a process, minutes after the loss of the rank that it waited for."""

_SAY_NOTHING = frozenset({1, 255})
"""Exit codes that any failure may have. The rules of a policy may give a meaning to other codes."""

_SAME_SECOND = timedelta(seconds=1)
"""The API server and the kubelets write times in whole seconds, and their clocks differ."""

NORMALISED_MAX = 200


class Finding(msgspec.Struct, frozen=True):
    """One piece of evidence and what it means."""

    evidence: Evidence
    disruption_class: DisruptionClass
    signature: str = ""
    """The name of the row of `signature_table.SIGNATURES` that fits. Empty: none does, and the kind of loss decides."""
    cascade: bool = False
    """It is a consequence of another loss, not a cause. It matches no rule, and no node is suspected because of it."""
    blames_node: bool = False
    """It proves that the node is at fault, not the job."""


class Disruption(msgspec.Struct, frozen=True):
    """What the evidence means: first the root, then the other causes by time, then the consequences."""

    findings: tuple[Finding, ...]

    @property
    def root(self) -> Finding:
        return self.findings[0]

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        return tuple(finding.evidence for finding in self.findings)

    @property
    def disruption_class(self) -> DisruptionClass:
        return self.root.disruption_class

    @property
    def cause(self) -> str:
        """A short CamelCase cause for the printer column: `Exit137`, `Evicted`, `PodDeleted`, `Xid79`."""
        return cause_of(self.root)

    @property
    def suspects(self) -> tuple[Suspect, ...]:
        """The pods that failed first, each once. Consequences count only if there is no cause."""
        causes = [finding for finding in self.findings if not finding.cascade] or list(self.findings)
        found: dict[str, Suspect] = {}
        for finding in causes:
            suspect = finding.evidence.suspect()
            if suspect is not None:
                found.setdefault(suspect.pod, suspect)
        return tuple(found.values())[:MAX_SUSPECTS]


def classify(evidence: tuple[Evidence, ...], snapshot: Snapshot) -> Disruption:
    """What the evidence means. Any evidence gets a class, and the order of the evidence does not matter.

    The disruption contains each piece of evidence once. The root is the earliest cause. If all evidence is a
    consequence, `_link_pair` or `_least_consequence` selects the root.
    """
    jobs = {job.uid: job for job in snapshot.jobs}
    signs = [_Sign(item, signature_of(item, snapshot), jobs.get(item.job_uid)) for item in evidence]
    signs.sort(key=_in_order)
    follow = _that_follow(signs)
    causes = [sign for sign in signs if not (sign.job_only or sign.waited or sign.ours or id(sign) in follow)]
    if not causes:
        causes = _link_pair(signs) or sorted(signs, key=_least_consequence)[:1]
    timed_out = [sign.second for sign in signs if sign.timed_out and sign.second is not None]
    first_timed_out = min(timed_out, default=None)
    taken = {id(sign) for sign in causes}
    return Disruption(
        (
            *(sign.finding(hung=sign.ran_past(first_timed_out)) for sign in causes),
            *(sign.finding(cascade=True) for sign in signs if id(sign) not in taken),
        )
    )


class _Sign(msgspec.Struct, frozen=True, eq=False):
    """A piece of evidence, with what it shows without the other evidence."""

    evidence: Evidence
    signature: Signature | None
    job: JobFacts | None
    """The Job that the evidence is about. None: the Job does not exist any more."""

    @property
    def second(self) -> datetime | None:
        """The second of the loss. The API server and the kubelets write whole seconds, so it has no finer order."""
        at = self.evidence.at
        return at.replace(microsecond=0) if at is not None else None

    @property
    def place(self) -> str:
        return self.evidence.pod.uid if self.evidence.pod is not None else self.evidence.key

    @property
    def job_only(self) -> bool:
        """It only says that the Job or the JobSet fails, which follows from what the pods did."""
        return self.evidence.kind in {LossKind.JOB_FAILING, LossKind.JOB_SET_FAILED}

    @property
    def waited(self) -> bool:
        """The process itself reports that another rank was missing."""
        return self.signature is not None and self.signature.cascade

    @property
    def timed_out(self) -> bool:
        return self.signature is not None and self.signature.name == _WATCHDOG

    @property
    def weak(self) -> bool:
        """A process ended by itself, and nothing says why. Not even its exit code has a meaning."""
        row, ended = self.signature, self.evidence.exit
        bare = row is None or (not row.is_specific and row.disruption_class is DisruptionClass.CRASHED)
        return (
            bare and self.evidence.kind in EXITED and (ended is None or row is not None or ended.code in _SAY_NOTHING)
        )

    @property
    def ours(self) -> bool:
        """No failure: SIGTERM or SIGKILL ended a process after its pod or its Job was deleted, or the Job failed."""
        row, ended = self.signature, self.evidence.exit
        if row is None or row.disruption_class is not DisruptionClass.KILLED or ended is None:
            return False
        pod = self.evidence.pod
        asked = [] if pod is None or ended in pod.ended_before_deletion else [pod.deleting_since]
        if self.job is not None:
            goes_down = (c for c in self.job.conditions if c.type in _GOES_DOWN and c.status == "True")
            asked += [self.job.deleting_since, *(condition.since for condition in goes_down)]
        return any(_ended_after(ended, moment) for moment in asked if moment is not None)

    def ran_past(self, timed_out: datetime | None) -> bool:
        """The process still ran when others timed out, and does not say that it waited: the others waited for it."""
        return self.weak and self.second is not None and timed_out is not None and timed_out < self.second

    def finding(self, *, cascade: bool = False, hung: bool = False) -> Finding:
        row, pod = self.signature, self.evidence.pod
        class_ = row.disruption_class if row is not None else _by_kind(self.evidence.kind)
        if hung:
            class_ = DisruptionClass.COMMUNICATION_FAILURE
        blames = row is not None and row.blames_node and pod is not None and bool(pod.node) and not cascade
        return Finding(self.evidence, class_, row.name if row is not None else "", cascade, blames)


def _ended_after(ended: ExitFacts, moment: datetime) -> bool:
    """The process ended after the request. If both happened within one second, the request counts as the cause."""
    return ended.finished_at is None or ended.finished_at >= moment - _SAME_SECOND


def _in_order(sign: _Sign) -> tuple[object, ...]:
    """Earliest first, within a second the most meaningful sign first, then by rank."""
    item, second = sign.evidence, sign.second
    index = item.pod.index if item.pod is not None and item.pod.index is not None else -1
    return (
        second is None,
        second.timestamp() if second is not None else 0.0,
        sign.waited or sign.ours,
        sign.weak,
        _RANK_OF_KIND[item.kind],
        index,
        item.key,
        item.text,
    )


def _least_consequence(sign: _Sign) -> tuple[object, ...]:
    return (sign.ours, sign.job_only, *_in_order(sign))


def _that_follow(signs: list[_Sign]) -> set[int]:
    """The ids (`id()`) of the signs that nothing explains and that follow the loss of another pod. `signs` is in order.

    Within one second, only signs with a meaning count as earlier than signs without one. No sign can follow a rank
    that waited for others: the rank that they waited for is one that does not say that it waited.
    """
    follow: set[int] = set()
    first, latest = _Places(), _Places()
    for second, group in groupby(signs, key=lambda sign: sign.second):
        if second is None:
            break
        lost = [sign for sign in group if not (sign.job_only or sign.waited or sign.ours)]
        telling = _Places()
        for sign in lost:
            if not sign.weak:
                telling.see(sign.place, second)
        for sign in lost:
            before = latest.other_than(sign.place)
            soon = before is not None and second - before <= FOLLOWS_WITHIN
            aborted = sign.evidence.exit is not None and sign.evidence.exit.code == _ABORTED
            timed_out = aborted and first.other_than(sign.place) is not None
            if sign.weak and (soon or timed_out or telling.other_than(sign.place) is not None):
                follow.add(id(sign))
        for sign in lost:
            first.see(sign.place, second, keep=True)
            latest.see(sign.place, second)
    return follow


class _Places:
    """Two pods and when they were lost. They suffice to find out for any pod whether and when another one was lost."""

    def __init__(self) -> None:
        self._seen: dict[str, datetime] = {}

    def see(self, place: str, at: datetime, *, keep: bool = False) -> None:
        """`keep` True: the first two pods stay. False: the latest two stay."""
        if keep and (place in self._seen or len(self._seen) == 2):
            return
        self._seen.pop(place, None)
        self._seen[place] = at
        if len(self._seen) > 2:
            del self._seen[next(iter(self._seen))]

    def other_than(self, place: str) -> datetime | None:
        """When the latest other pod was lost. None: no other pod was."""
        return max((at for other, at in self._seen.items() if other != place), default=None)


def _link_pair(signs: list[_Sign]) -> list[_Sign]:
    """The signs of connections reset at exactly two hosts, where the fault may lie at either end. Else empty."""
    reset = [sign for sign in signs if sign.signature is not None and sign.signature.name == _RESET]
    hosts = {sign.evidence.pod.node or sign.evidence.pod.name for sign in reset if sign.evidence.pod is not None}
    return reset if len(hosts) == 2 else []


_WATCHDOG = "NcclWatchdog"
_RESET = "ConnectionReset"
_GOES_DOWN = frozenset({"FailureTarget", "Failed"})

_RANK_OF_KIND = {
    LossKind.MANUAL: 0,
    LossKind.ROOM: 0,
    LossKind.AGENT_BLOCKS_START: 0,
    LossKind.NODE_LOST: 0,
    LossKind.NODE_FAULT: 0,
    LossKind.POD_DISRUPTED: 0,
    LossKind.POD_FAILED: 1,
    LossKind.CONTAINER_RESTARTED: 1,
    LossKind.PROCESS_ENDED: 1,
    LossKind.POD_DELETED: 2,
    LossKind.JOB_DELETED: 2,
    LossKind.JOB_FAILING: 3,
    LossKind.JOB_SET_FAILED: 4,
}

_BY_KIND = {
    LossKind.POD_DELETED: DisruptionClass.POD_DELETED,
    LossKind.JOB_DELETED: DisruptionClass.POD_DELETED,
    LossKind.POD_DISRUPTED: DisruptionClass.POD_DISRUPTED,
    LossKind.NODE_LOST: DisruptionClass.NODE_LOST,
    LossKind.NODE_FAULT: DisruptionClass.HARDWARE_FAULT,
    LossKind.JOB_FAILING: DisruptionClass.JOB_FAILED,
    LossKind.JOB_SET_FAILED: DisruptionClass.JOB_FAILED,
    LossKind.MANUAL: DisruptionClass.MANUAL,
    LossKind.ROOM: DisruptionClass.GROWTH,
}


def _by_kind(kind: LossKind) -> DisruptionClass:
    return _BY_KIND.get(kind, DisruptionClass.UNKNOWN)


def cause_of(finding: Finding) -> str:
    """A short CamelCase cause for the printer column: the name in the table, else how it ended or who moved the pod."""
    item, row = finding.evidence, BY_NAME.get(finding.signature)
    if row is not None and row.is_specific:
        number = xid_of(item, row)
        return f"Xid{number}" if number else row.name
    if item.exit is not None:
        return "OOMKilled" if item.exit.reason == "OOMKilled" else f"Exit{item.exit.code}"
    if item.kind is LossKind.POD_DISRUPTED and item.disrupted_by:
        return item.disrupted_by
    return row.name if row is not None else str(item.kind)


# --- recognising the same message again ----------------------------------------------------------------------------

_CHANGING = re.compile(
    r"""(?x)
    (?P<time> \d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?
        | (?:\b[IWEF]\d{3,4}\s)?\d\d:\d\d:\d\d(?:[.,]\d+)? )
    | (?P<id> \b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b )
    | (?P<address> \b0[xX][0-9a-fA-F]+ )
    | (?P<host> \b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?
        | (?<![\w.-])(?=[a-z0-9.-]*\d)[a-z][a-z0-9]*(?:-[a-z0-9]+)+(?:\.[a-z0-9-]+)*(?::\d+)? )
    | (?P<xid> \b[Xx][Ii][Dd](?:\s*\(PCI:[^)]{0,40}\))?[\s:=\#-]{0,3}(?P<number>\d+) )
    | (?P<kept> \b(?:[Ee]rrno|[Ee]rror|[Ee]xit\ ?code|[Cc]ode|[Ss]ignal)[\s:=]{1,3}\d+ )
    | (?P<n> (?:(?<=rank)|(?<=Rank)|(?<=default)|(?<=worker)|(?<=step)|(?<=pid)|(?<![A-Za-z_0-9.]))
        \d+(?:\.\d+)?(?:[eE][+-]?\d+)? )
    """
)

_STEP = re.compile(r"(?i)\b(?:global[ _]?step|training[ _]step|steps?|iterations?|iter)\b\s*[:=#]?\s*(\d{1,12})\b")


def normalised_message(text: str) -> str:
    """The last line that has letters, at most 200 characters of it, without the parts that change from run to run.

    Placeholders such as `<time>` replace times, addresses, ids, names of hosts and pods, ranks, process ids and other
    numbers. The numbers of errors (XID, errno, exit code, signal) stay, because they distinguish one failure from
    another.
    """
    # A line without letters, such as the end of torchrun's banner, is the same for every failure.
    lines = [line for line in map(str.strip, text[-MESSAGE_MAX:].splitlines()) if any(map(str.isalpha, line))]
    return _CHANGING.sub(_replacement, lines[-1])[:NORMALISED_MAX] if lines else ""


def _replacement(match: re.Match[str]) -> str:
    if match["xid"] is not None:
        return f"Xid {match['number']}"
    return match[0] if match["kept"] is not None else f"<{match.lastgroup}>"


def step_in(text: str) -> int | None:
    """The training step that the message names last, as in `step 1200`, `iteration 1200`, `global_step: 1200`.

    None: it names none.
    """
    steps = _STEP.findall(text[-MESSAGE_MAX:])
    return int(steps[-1]) if steps else None
