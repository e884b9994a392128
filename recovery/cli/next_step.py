"""What comes next for a listed job, and how much the job needs a person. Nothing is decided here."""

from datetime import datetime, timedelta
from enum import IntEnum

import msgspec

from recovery.cli.formatting import time_of_day
from recovery.cli.readiness import BROKEN, NOT_STARTED, PAUSED, STARTING, UNREADABLE
from recovery.core.decision.resuming import deadline_of
from recovery.core.diagnosis.group_conditions import EARLIER_LOSS, TRAINS_AGAIN
from recovery.core.incident import lifecycle
from recovery.core.model.ledger import Ledger, Phase
from recovery.core.model.ledger_condition import LedgerCondition
from recovery.core.model.protection import Protection, ProtectionReason
from recovery.core.model.reason import Reason
from recovery.core.plan.status_conditions import in_crash_loop

_OVERDUE_AFTER = timedelta(minutes=1)
"""A step this late is overdue. A running controller is not that late."""


class Need(IntEnum):
    """How much a job needs a person: the order of the listing."""

    PERSON = 0
    """Nothing happens until a person acts."""
    IN_PROGRESS = 1
    """An incident is being recovered, or the job starts, or one of its nodes is silent."""
    FAILED = 2
    """The job has failed, and its owner may want to know."""
    UNPROTECTED = 3
    """The job runs. A loss would leave it hanging, an earlier one may have done so, it wants more nodes, or it
    has failed before."""
    NOTHING = 4
    """It runs."""
    OVER = 5
    """It is suspended, complete or being deleted."""


class NextStep(msgspec.Struct, frozen=True):
    """What comes next. Empty: nothing, as far as is known."""

    what: str = ""
    """What the job or the controller does. Empty: nothing without a person."""
    at: datetime | None = None
    """When, or when at the latest. None: when the state of the cluster allows it."""
    otherwise: str = ""
    """What happens if it has not come by then. Empty: nothing."""
    verb: str = ""
    """The command that a person runs. Empty: none."""
    forced: bool = False
    """The command is a restart, which has no effect without `--force`."""

    def command(self, job: str, namespace: str) -> str:
        """The command line. Empty: there is none. `namespace` empty: the one of the context."""
        if not self.verb or self.verb in _OF_THE_CLUSTER:
            return f"recovery {self.verb}" if self.verb else ""
        where = f" -n {namespace}" if namespace else ""
        needed = " --reason TEXT --force" if self.forced else ""
        return f"recovery {self.verb} {job}{where}{needed}"

    def words(self, command: str, now: datetime) -> str:
        """One line, with the command in the form that the caller chooses."""
        return " or ".join(part for part in (self._by_itself(now), self.otherwise, command) if part)

    def short_words(self, now: datetime) -> str:
        """A shorter line, without `otherwise`. JOB stands for the name."""
        return " or ".join(part for part in (self._by_itself(now), self.command("JOB", "")) if part)

    def _by_itself(self, now: datetime) -> str:
        if self.at is None:
            return self.what
        late = "overdue: " if now - self.at > _OVERDUE_AFTER else ""
        return f"{late}{self.what} {time_of_day(self.at, now)}"


_OF_THE_CLUSTER = frozenset({"reset-breaker"})
"""Commands that name no job."""

_COMMANDS = {
    ProtectionReason.BREAKER_OPEN: "reset-breaker",
    ProtectionReason.PAUSED_BY_ANNOTATION: "resume",
    ProtectionReason.BUDGET_EXHAUSTED: "reset-budget",
    ProtectionReason.POLICY_UNUSABLE: "explain",
    ProtectionReason.LEDGER_UNREADABLE: "explain",
    ProtectionReason.OBJECT_UNDECODABLE: "explain",
    ProtectionReason.PAUSED_GLOBALLY: "explain",
    ProtectionReason.POD_KEPT_RUNNING: "explain",
    ProtectionReason.TRAINING_CONTAINER_UNKNOWN: "explain",
    ProtectionReason.NO_CONTROLLER: "explain",
}
"""What a person runs first for a job that is not protected. The other reasons follow from a policy."""

ON_ITS_WAY = {
    Phase.DECIDED: "restarts",
    Phase.STOPPING: "waits for processes to end",
    Phase.FENCING: "waits for the node",
    Phase.TEARING_DOWN: "waits for old pods",
    Phase.SCHEDULING: "waits for nodes",
    Phase.STARTING: "waits for pods",
    Phase.RENDEZVOUS: "waits for Ready",
    Phase.RESUMING: "waits for progress",
}
"""The next step of an incident that the controller acts on, if its time is not known."""


def next_step(
    phase: str, ledger: Ledger, found: Protection, *, resumes_at: datetime | None, suspended: bool, silent: bool
) -> NextStep:
    """`suspended`: by the controller. `resumes_at` None: for no set time. `silent`: a node does not answer."""
    open_ = ledger.incident
    if phase in {UNREADABLE, NOT_STARTED} or silent:
        return NextStep(verb="explain")
    if open_ is not None and open_.closing is None:
        return _of_incident(ledger, found, resumes_at, suspended=suspended)
    if suspended:  # its incident is over or forgotten; a running controller resumes it
        return NextStep("resumes", resumes_at, verb="resume")
    if phase == STARTING:
        return NextStep("waits for pods")
    if phase == PAUSED:  # whatever else the policy says
        return NextStep(verb="resume")
    return _between_incidents(ledger, found)


def _between_incidents(ledger: Ledger, found: Protection) -> NextStep:
    """The next step of a job that runs or hangs, and that no one has paused."""
    if found.reason is ProtectionReason.BROKEN:
        return NextStep(verb="restart", forced=True) if found.forced else NextStep(verb="retry")
    if found.reason in _COMMANDS:
        return NextStep("budget frees" if found.until else "", found.until, verb=_COMMANDS[found.reason])
    if found.protected is not None and ledger.elastic is not None:
        return NextStep("grows when there is room")
    if found.protected is not None and to_judge(ledger) is not None:
        return NextStep(verb="explain")  # only a person can judge whether the ranks hang, or the job should train
    if in_crash_loop(ledger):
        return NextStep(verb="explain")
    return NextStep()


def to_judge(ledger: Ledger) -> LedgerCondition | None:
    """What the controller leaves to a person: a loss that it does not act on, whose ranks may hang, or a failed job
    that trains again. None: there is neither, or an incident is open."""
    if ledger.incident is not None and ledger.incident.closing is None:
        return None
    found = (each for each in ledger.conditions if each.type in {EARLIER_LOSS, TRAINS_AGAIN} and each.status == "True")
    return next(found, None)


def _of_incident(ledger: Ledger, found: Protection, resumes_at: datetime | None, *, suspended: bool) -> NextStep:
    open_ = ledger.current_incident
    if ledger.phase is Phase.HELD:
        return _of_held(ledger)
    if suspended and found.reason is ProtectionReason.NO_CONTROLLER:
        return NextStep(verb="resume")
    if waits_for_a_person(found) or not lifecycle.acts(ledger):
        return NextStep(verb=_COMMANDS.get(found.reason, "explain"))
    started = open_.phases[-1].started_at if open_.phases else open_.started_at
    pinned = open_.pinned
    if suspended:
        return NextStep("resumes when there is room" if lifecycle.is_released(ledger) else "resumes", resumes_at)
    if ledger.phase is Phase.BACKOFF:
        needless = open_.reason is Reason.MEMBERS_RUN_AGAIN
        return NextStep("closes") if needless else NextStep("restarts", ledger.next_attempt_at)
    if ledger.phase is Phase.STARTING:
        return NextStep("runs by", started + timedelta(seconds=pinned.start_timeout_seconds), "restarts")
    if ledger.phase is Phase.RENDEZVOUS and open_.probe_proven and pinned.rendezvous_timeout_seconds:
        return NextStep("joins by", started + timedelta(seconds=pinned.rendezvous_timeout_seconds), "restarts")
    if ledger.phase is Phase.RESUMING:
        return NextStep("ends by", deadline_of(ledger))
    return NextStep(ON_ITS_WAY[ledger.phase])


def _of_held(ledger: Ledger) -> NextStep:
    open_ = ledger.current_incident
    if open_.step.fails_job:
        return NextStep("fails the job")
    if open_.step.verdict is not None:
        return NextStep(verb="explain")  # shows the reason, which recurs until a person has removed it
    if ledger.next_attempt_at is not None:
        return NextStep("restarts", ledger.next_attempt_at, verb="retry")
    return NextStep(verb="retry")


def waits_for_a_person(found: Protection) -> bool:
    """The open incident waits for a person. With an exhausted budget, its last attempt still continues."""
    return found.protected is False and found.reason is not ProtectionReason.BUDGET_EXHAUSTED


def need_of(phase: str, ledger: Ledger, found: Protection, *, suspended: bool, silent: bool) -> Need:
    """`suspended`: by the controller. `silent`: a node of the job does not answer."""
    if phase in {UNREADABLE, NOT_STARTED, BROKEN} or found.reason is ProtectionReason.BROKEN:
        return Need.PERSON
    if ledger.incident is not None and ledger.incident.closing is None:
        return Need.PERSON if waits_for_a_person(found) else Need.IN_PROGRESS
    if phase in {"Healthy", STARTING} and in_crash_loop(ledger):
        return Need.PERSON
    if phase == STARTING or silent or suspended:
        return Need.IN_PROGRESS
    if phase == "Failed":
        return Need.FAILED
    if phase in {"Healthy", "NoPolicy", PAUSED}:
        in_need = found.protected is False or ledger.elastic is not None or to_judge(ledger) is not None
        return Need.UNPROTECTED if in_need else Need.NOTHING
    return Need.OVER
