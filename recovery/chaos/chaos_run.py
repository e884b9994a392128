"""One run of an experiment: for each repeat it names the pods, acts, and watches until the job has recovered.

A pod is named in the RecoveryDrill, and the controller has acknowledged the name, before anything happens to it. So a
client that dies at any moment leaves no failure of its own that would count as a real one. What it has changed on nodes
has a mark, so anyone can take it back (`recovery.chaos.abort`).
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from recovery.chaos.drill_record import DrillRecord
from recovery.chaos.incident_clock import IncidentClock
from recovery.chaos.job_state import JobMember
from recovery.chaos.marked_nodes import LeftOver, mark_nodes, undo_node
from recovery.chaos.observation import IncidentsOfRepeat, Observation, Observer, open_incident
from recovery.chaos.pod_acts import PodActs
from recovery.chaos.preconditions import problems
from recovery.chaos.run_plan import RunPlan, beyond, first_entries, pods_on_nodes_of, strike_words
from recovery.chaos.strikes import NAMED_MAX, Strike, aimed, reach_of
from recovery.chaos.tools import ChaosTools, RunStoppedError
from recovery.core.drill.verdict import exceeded, judge, worst
from recovery.core.model.drill import (
    DRILL_MAX_SECONDS,
    DrillCase,
    DrilledWorkload,
    DrillSpec,
    DrillVerdict,
    NamedPod,
)
from recovery.core.model.ledger import Incident, Ledger
from recovery.core.model.reason import Reason
from recovery.core.plan.parts import message_of
from recovery.ports import ApiError, TryLaterError
from recovery.scenario.experiment import Experiment
from recovery.scenario.experiment_chaos import ExperimentChaos
from recovery.scenario.strict_input import BadInputError

WATCHED_EVERY_SECONDS = 1.0
AWAITED_EVERY_SECONDS = 0.2
"""While an entry waits for a phase, which may last for less than a second, or for pods."""
REPEAT_SECONDS_MAX = 30 * 60.0
READY_AGAIN_SECONDS_MAX = 10 * 60.0
READY_AGAIN_EVERY_SECONDS = 5.0
NO_INCIDENT_SECONDS = 60.0
"""How long no incident must open, where none is expected and the file has no `slo.recovery`."""
SETTLED_SECONDS = 10.0
"""A repeat goes on for at least so long after its last act, because the controller may see that late."""
UNREACHABLE_SECONDS_MAX = 60.0
VERDICT_SECONDS_MAX = 30.0
_MARGIN = timedelta(minutes=5)
"""Of `expiresAt`: the clock of the client may be ahead of that of the API server."""

Note = Callable[[float, str], None]
"""Called with the seconds since the start of the run, and what happened, in words."""


class RunOutcome(msgspec.Struct, frozen=True):
    """How a run ended."""

    drill: str
    """Name of the RecoveryDrill. Empty: it was not created, because the run ended before."""
    reason: Reason
    message: str
    """Why the run ended."""
    verdict: DrillVerdict
    verdict_message: str
    cases: tuple[DrillCase, ...]
    interrupted: bool
    left_over: tuple[LeftOver, ...]
    """Nodes that could not be put back."""
    error: ApiError | None = None
    """The error of the API server that ended the run. None: another reason did."""


class _Progress(msgspec.Struct):
    """One repeat under way."""

    number: int
    incidents: IncidentsOfRepeat
    pending: list[ExperimentChaos]
    begun_seconds: float
    """When its first pods were acknowledged. `at` counts from then."""
    acted_seconds: float
    strikes: list[Strike]
    unfit: dict[str, str] = msgspec.field(default_factory=dict)
    """Why an entry that is due waits for other pods, by path."""
    phase: str = ""
    """The incident and its phase, as last noted. Empty: no incident was open."""


class ChaosRun:
    """Runs once."""

    def __init__(
        self, tools: ChaosTools, experiment: Experiment, plan: RunPlan, *, name: str, started_by: str, note: Note
    ) -> None:
        workload = plan.state.workload
        assert workload is not None, "a plan has a job"
        self._workload: DrilledWorkload = workload
        self._tools = tools
        self._experiment = experiment
        self._plan = plan
        self._key = plan.state.key
        self._started_by = started_by
        self._began_seconds = tools.clock.monotonic_seconds()
        self._note_at = note
        self._record = DrillRecord(tools.api, tools.clock, self._key, name)
        self._observer = Observer(tools.api, self._key)
        self._pod_acts = PodActs(tools, self._key.namespace, self._note)
        self._incident_clock = IncidentClock(tools.clock)
        self._elsewhere: set[str] | None = None
        """Ids of incidents of other jobs that were open when the run began. None: it has not begun."""
        self._touched: set[str] = set()
        """Nodes that may have a mark of this run."""
        self._cases: list[DrillCase] = []
        self._interrupted = False

    async def run(self) -> RunOutcome:
        """Run to the end, or until something stops it. To interrupt the run, cancel its task: it takes back what it has
        changed, and returns."""
        reason, message = Reason.DRILL_DONE, "all repeats were run"
        failed: ApiError | None = None
        try:
            message = await self._repeats() or message
        except RunStoppedError as stopped:
            reason, message = stopped.reason, stopped.message
        except asyncio.CancelledError:
            self._interrupted = True
            reason, message = Reason.DRILL_INTERRUPTED, "a person interrupted the run"
        except ApiError as error:
            reason, message, failed = Reason.DRILL_ACT_FAILED, str(error), error
        return await self._uninterrupted(self._over(reason, message, failed))

    async def _uninterrupted(self, ending: Coroutine[Any, Any, RunOutcome]) -> RunOutcome:
        """The outcome. An interruption of the end shortens it, but takes back no less."""
        task = asyncio.ensure_future(ending)
        while not task.done():
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError:
                self._interrupted = True
        return task.result()

    # The repeats.

    async def _repeats(self) -> str:
        """Why there were fewer than the file says. Empty: all were run."""
        times = self._experiment.repeat
        for number in range(1, times + 1):
            await self._ready(number)
            case = await self._repeat(number)
            self._cases.append(case)
            self._note(f"repeat {number}: {case.verdict}: {case.message}")
            if left := await self._undo():
                raise RunStoppedError(Reason.DRILL_ACT_FAILED, f"node {left[0].node}: {left[0].why}")
            if case.verdict is not DrillVerdict.PASSED and number < times:
                return f"repeat {number} of {times} ended as {case.verdict}, so no further one was run"
        return ""

    async def _ready(self, number: int) -> None:
        """Wait until nothing speaks against the repeat. The first one waits for nothing: a person has just agreed."""
        clock = self._tools.clock
        until = clock.monotonic_seconds() + (READY_AGAIN_SECONDS_MAX if number > 1 else 0.0)
        while found := problems(await self._tools.probe.state(), self._experiment, self._record.uid):
            if number > 1:
                await self._record.read()
                self._record.check()
            if clock.monotonic_seconds() >= until:
                raise RunStoppedError(Reason.DRILL_PRECONDITION, "; ".join(found))
            await clock.sleep(READY_AGAIN_EVERY_SECONDS)

    async def _repeat(self, number: int) -> DrillCase:
        clock = self._tools.clock
        members = await self._tools.probe.members()
        first = [self._aimed(each, number, members) for each in first_entries(self._experiment)]
        if number == 1 and tuple(first) != self._plan.first:
            why = "the pods have changed since the plan was shown; run the command again"
            raise RunStoppedError(Reason.DRILL_PRECONDITION, why)
        seen = await self._look()
        if self._elsewhere is None:
            self._elsewhere = set(seen.elsewhere(self._workload.uid))
        before = seen.ledger_of(self._workload.uid)
        now = clock.monotonic_seconds()
        progress = _Progress(
            number=number,
            incidents=IncidentsOfRepeat(self._tools.api, self._key, self._workload.uid, before),
            pending=[each for each in self._experiment.chaos if each not in first_entries(self._experiment)],
            begun_seconds=now,
            acted_seconds=now,
            strikes=[],
        )
        await self._name(progress, first)
        # The controller may take seconds to acknowledge the pods. They must not shorten the time between two entries.
        progress.begun_seconds = clock.monotonic_seconds()
        await clock.sleep(first[0].chaos.at_seconds or 0.0)
        await self._act(progress, first)
        while True:
            awaits = any(each.during is not None or each.path in progress.unfit for each in progress.pending)
            await clock.sleep(AWAITED_EVERY_SECONDS if awaits else WATCHED_EVERY_SECONDS)
            case = await self._watched(progress)
            if case is not None:
                return case

    async def _watched(self, progress: _Progress) -> DrillCase | None:
        """Look once, and act if an entry is due. The result of the repeat if it is over, else None."""
        seen = await self._look()
        self._check(seen)
        await self._record.read()
        self._record.check()
        found = await progress.incidents.see(seen)
        ledger = seen.ledger_of(self._workload.uid)
        self._report(progress, ledger)
        drill = self._record.known()
        mine = [each for each in found if each.drill is not None and each.drill.uid == drill.uid]
        measured_at = self._incident_clock.now(mine)
        if measured_at is not None and (over := exceeded(drill.spec, mine, measured_at)) is not None:
            raise RunStoppedError(over.reason, message_of(over))
        if len(mine) < len(found) or self._is_over(progress, mine):
            return judge(drill.spec, drill.uid, progress.number, found, self._tools.clock.now())
        due = [each for each in progress.pending if self._is_due(each, progress, mine, ledger)]
        if due and (strikes := self._fitting(due, progress, mine, await self._tools.probe.members())):
            struck = [strike.chaos for strike in strikes]
            progress.pending = [each for each in progress.pending if each not in struck]
            await self._name(progress, strikes)
            await self._act(progress, strikes)
        return None

    def _fitting(
        self,
        due: Sequence[ExperimentChaos],
        progress: _Progress,
        mine: Sequence[Incident],
        members: Sequence[JobMember],
    ) -> list[Strike]:
        """The entries that fit the pods that exist. The others wait while the job recovers, because all its pods may be
        on their way down, or not yet on a node. Raises RunStoppedError if one does not fit a job that has recovered."""
        recovers = len(mine) < self._experiment.hypothesis.incidents or any(each.closing is None for each in mine)
        found = []
        for each in due:
            try:
                found.append(aimed(self._experiment, each, progress.number, members))
            except BadInputError as error:
                if not recovers:
                    raise RunStoppedError(Reason.DRILL_ACT_FAILED, str(error)) from error
                progress.unfit[each.path] = str(error)
        return found

    def _is_over(self, progress: _Progress, mine: Sequence[Incident]) -> bool:
        """Raises RunStoppedError if an entry waits for a phase that will not come."""
        now, expected = self._tools.clock.monotonic_seconds(), self._experiment.hypothesis.incidents
        if now - progress.begun_seconds >= REPEAT_SECONDS_MAX:
            return True
        quiet_seconds = now - progress.acted_seconds
        is_open = any(each.closing is None for each in mine)
        if is_open or len(mine) < expected or quiet_seconds < SETTLED_SECONDS:
            return False
        waiting = next((each for each in progress.pending if each.during is not None), None)
        if waiting is not None:
            never = f"{waiting.path}: the incident was not seen in phase {waiting.during} before it closed"
            why = progress.unfit.get(waiting.path, never)
            raise RunStoppedError(Reason.DRILL_ACT_FAILED, why)
        if progress.pending:
            return False
        return bool(expected) or quiet_seconds >= (self._experiment.recovery_seconds or NO_INCIDENT_SECONDS)

    def _is_due(self, chaos: ExperimentChaos, progress: _Progress, mine: Sequence[Incident], ledger: Ledger) -> bool:
        if chaos.during is None:
            passed = self._tools.clock.monotonic_seconds() - progress.begun_seconds
            return passed >= (chaos.at_seconds or 0.0)
        open_ = open_incident(ledger)
        return open_ is not None and ledger.phase is chaos.during and any(each.id == open_.id for each in mine)

    # Naming and acting.

    def _aimed(self, chaos: ExperimentChaos, repeat: int, members: Sequence[JobMember]) -> Strike:
        try:
            return aimed(self._experiment, chaos, repeat, members)
        except BadInputError as error:
            raise RunStoppedError(Reason.DRILL_ACT_FAILED, str(error)) from error

    async def _name(self, progress: _Progress, strikes: Sequence[Strike]) -> None:
        """Name the pods of the strikes, and wait until they count. Raises RunStoppedError if a limit forbids them."""
        together = (*progress.strikes, *strikes)
        on_nodes = await pods_on_nodes_of(self._tools.api, together)
        if over := beyond(self._experiment, reach_of(together, on_nodes), tuple(strikes), on_nodes, self._key):
            raise RunStoppedError(Reason.DRILL_LIMIT, "; ".join(over))
        pods = self._named(progress.number, strikes)
        if self._record.named + len(pods) > NAMED_MAX:
            why = f"a drill can name at most {NAMED_MAX} pods; select fewer, or repeat it less often"
            raise RunStoppedError(Reason.DRILL_LIMIT, why)
        if self._record.facts is None:
            await self._record.create(self._spec(pods))
            self._note(f"RecoveryDrill {self._record.name} created")
        else:
            await self._record.add(pods)
        await self._record.acknowledged()
        progress.strikes.extend(strikes)

    def _named(self, repeat: int, strikes: Sequence[Strike]) -> tuple[NamedPod, ...]:
        number, found = self._record.named, []
        for strike in strikes:
            for member in strike.members:
                number += 1
                found.append(
                    NamedPod(
                        number=number,
                        repeat=repeat,
                        action=strike.chaos.action,
                        pod=member.pod,
                        pod_uid=member.uid,
                        node=member.node,
                        index=member.index,
                    )
                )
        return tuple(found)

    def _spec(self, pods: tuple[NamedPod, ...]) -> DrillSpec:
        longest = timedelta(seconds=self._experiment.repeat * (REPEAT_SECONDS_MAX + READY_AGAIN_SECONDS_MAX))
        lasts = min(longest + _MARGIN, timedelta(seconds=DRILL_MAX_SECONDS) - _MARGIN)
        return DrillSpec(
            workload_ref=self._workload,
            experiment=self._experiment.name,
            expires_at=(self._tools.clock.now() + lasts).replace(microsecond=0),
            repeat=self._experiment.repeat,
            started_by=self._started_by,
            hypothesis=self._experiment.hypothesis,
            slo=self._experiment.slo,
            checkpoint_step=self._plan.state.checkpoint.step,
            pods=pods,
        )

    async def _act(self, progress: _Progress, strikes: Sequence[Strike]) -> None:
        for strike in strikes:
            self._note(strike_words(strike))
            if strike.chaos.action.of_nodes:
                self._touched.update(strike.nodes)
                await mark_nodes(self._tools.api, self._tools.clock, strike, self._record.known())
            else:
                await self._pod_acts.carry_out(strike)
        progress.acted_seconds = self._tools.clock.monotonic_seconds()

    # Watching.

    async def _look(self) -> Observation:
        """Raises RunStoppedError if the API server does not answer for `UNREACHABLE_SECONDS_MAX`."""
        clock = self._tools.clock
        until = clock.monotonic_seconds() + UNREACHABLE_SECONDS_MAX
        while True:
            try:
                return await self._observer.look()
            except TryLaterError as error:
                if clock.monotonic_seconds() >= until:
                    why = f"the API server has not answered for {UNREACHABLE_SECONDS_MAX:g} s: {error}"
                    raise RunStoppedError(Reason.DRILL_ACT_FAILED, why) from error
                await clock.sleep(WATCHED_EVERY_SECONDS)

    def _check(self, seen: Observation) -> None:
        """Raises RunStoppedError if something besides the job forbids the run to go on."""
        config = seen.config
        if config is not None and config.stop is not None:
            raise RunStoppedError(config.stop.reason, message_of(config.stop))
        for incident, job in seen.elsewhere(self._workload.uid).items():
            if incident not in (self._elsewhere or ()):
                why = f"incident {incident} of job {job} began while the drill ran"
                raise RunStoppedError(Reason.DRILL_INCIDENT_ELSEWHERE, why)
        if self._tools.clock.now() >= self._record.known().spec.expires_at:
            raise RunStoppedError(Reason.DRILL_TOO_LONG, "the time of the drill is over")

    def _report(self, progress: _Progress, ledger: Ledger) -> None:
        """Note each phase of an incident once."""
        open_ = open_incident(ledger)
        phase = f"incident {open_.id}: {ledger.phase}" if open_ is not None else ""
        if phase not in ("", progress.phase):
            self._note(f"{phase}: {ledger.message}")
        progress.phase = phase

    # The end.

    async def _over(self, reason: Reason, message: str, failed: ApiError | None) -> RunOutcome:
        left = await self._undo()
        clock, drill = self._tools.clock, self._record.name
        verdict, said, cases = DrillVerdict.ABORTED, message, tuple(self._cases)
        try:
            end = await self._record.end(reason, message, clock.now())
            if end is None:
                drill = ""
            else:
                await self._await_verdict()
        except ApiError as error:
            left = (*left, LeftOver("", f"RecoveryDrill {drill} could not be ended: {error}"))
        status = self._record.facts.status if self._record.facts is not None else None
        if status is not None and status.verdict is not None:
            verdict, said, cases = status.verdict, status.message or message, status.cases or cases
        elif drill and not self._interrupted and reason is Reason.DRILL_DONE:
            verdict = DrillVerdict.INCONCLUSIVE if worst(cases) is DrillVerdict.PASSED else worst(cases)
            said = f"the controller has written no verdict within {VERDICT_SECONDS_MAX:g} s"
        return RunOutcome(drill, reason, message, verdict, said, cases, self._interrupted, left, failed)

    async def _undo(self) -> tuple[LeftOver, ...]:
        """Take back all that this run has changed on nodes. Returns what could not be taken back."""
        found = [
            await undo_node(self._tools.api, self._tools.clock, name, self._record.uid)
            for name in sorted(self._touched)
        ]
        left = tuple(each for each in found if each is not None)
        self._touched = {each.node for each in left}
        return left

    async def _await_verdict(self) -> None:
        clock = self._tools.clock
        until = clock.monotonic_seconds() + VERDICT_SECONDS_MAX
        while self._record.facts is not None and self._record.facts.status.verdict is None:
            if self._interrupted or clock.monotonic_seconds() >= until:
                return
            await clock.sleep(WATCHED_EVERY_SECONDS)
            try:
                await self._record.read()
            except TryLaterError:
                continue

    def _note(self, text: str) -> None:
        self._note_at(self._tools.clock.monotonic_seconds() - self._began_seconds, text)
