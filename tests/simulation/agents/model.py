"""A group of pods with agents, and a controller, in virtual time: the agents' own machines, the controller's `decide`.

Links, ranks, kubelets and the way of a report are modelled here, with delays and losses that are drawn. What the API
server would do with pods and Jobs is only as much as a recreated group needs.
"""

import heapq
import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random

import msgspec

from recovery.agent._trainjob_recovery import barrier as barriers
from recovery.agent._trainjob_recovery import member as members
from recovery.agent._trainjob_recovery.barrier import Barrier
from recovery.agent._trainjob_recovery.member import AgentMember
from recovery.agent._trainjob_recovery.messages import Action, Failure, ReportAnswer
from recovery.agent._trainjob_recovery.slot_progress import RankProgress
from recovery.controller.agent_exchange import AgentExchange
from recovery.core.decision.agent_answer import answer_of
from recovery.core.model.agent_facts import AgentAnswer, AgentOrder
from recovery.core.model.facts import GroupKey
from recovery.core.model.ledger import AttemptAction, Ledger
from recovery.core.policy.resolved import Policy
from recovery.rendezvous.reports import read_report
from tests.unit.core.agents import injected
from tests.unit.core.driver import Controller
from tests.unit.core.groups import training
from tests.unit.core.world import World, at

RANK_STARTS_IN = (0.2, 2.0)
RANK_STOPS_IN = (0.05, 1.5)
RANK_ARRIVES_IN = (0.05, 3.0)
"""From the start of a process until it calls `init_process_group`."""
RANKS_JOIN_IN = (0.01, 0.5)
STEPS_A_SECOND = 5
CHECKPOINT_EVERY_STEPS = 200
_KEY = GroupKey("ml", "train")
LINK_SECONDS = (0.001, 0.05)
REPORT_SECONDS = (0.005, 0.5)
CONTAINER_BACK_IN = 1.0
GROUP_BACK_IN = 20.0


class Start(msgspec.Struct, frozen=True):
    """Agents began an epoch."""

    at: float
    job: str
    barrier: str
    epoch: int
    by: str
    """Alone or Answer."""


class Shows(msgspec.Struct, frozen=True):
    """What the program lets the agents see."""

    joins: bool = False
    late_seconds: float = 0.0
    """It prepares itself for so long before its ranks arrive."""
    not_rank: int | None = None
    """This rank never arrives, and the others do not need it. None: all arrive."""
    steps: bool = False
    absolute: bool = False
    """Its steps count from the beginning of the training."""


class Slot:
    """One pod: its agent's member, its link, and whether a process of its rank is there."""

    def __init__(self, number: int, slots: int, incarnation: int) -> None:
        self.number = number
        self.incarnation = incarnation
        self.member = AgentMember(slots, 1)
        self.link: int | None = None
        """None: the link is lost, or not there yet."""
        self.process: int | None = None
        """The epoch of the process that is there. None: there is none."""
        self.shown = RankProgress()
        """What that process shows its agent."""
        self.alive = True
        """The agent runs."""


class Cluster:
    """The group `train`, its agents, and the controller that leads."""

    def __init__(self, policy: Policy, random: Random, slots: int = 4, shows: Shows | None = None) -> None:
        self.random = random
        self.now = 0.0
        self.slots = slots
        self.shows = shows or Shows()
        self.joined_at: list[float] = []
        """When all ranks had joined, in any epoch."""
        self.step = self.checkpoint = 0
        self.world: World = injected(training(slots, restart_policy="OnFailure"))
        self.controller = Controller(policy)
        self.answers = answer_of
        """How the controller answers. Canaries replace it."""
        self.controller_away = False
        self.reports_lost = 0
        """How many of the next reports are lost."""
        self.starts: list[Start] = []
        self.permitted_alone: list[tuple[float, int]] = []
        """What each answer that arrived permitted."""
        self.overlaps: list[str] = []
        self.needless: list[str] = []
        """Recreations of a group whose ranks were all back."""
        self.handled: set[str] = set()
        """The keys of all evidence that incidents have had."""
        self.arrived: set[tuple[str, int]] = set()
        """The restarts in place of which a report has arrived, by barrier and ended epoch."""
        self.decided: Counter[str] = Counter()
        """The epochs after which the ledger has decided a restart in place, and how often."""
        self.exchange = AgentExchange()
        self.exchange.subscribe(lambda key, facts: self._reconcile())
        self._seen: World | None = None
        """What the latest reconcile has read. None: there was none. Only a change, or its time, brings the next."""
        self._due = 0.0
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self._running_since = 0.0
        self._container_ended_at = -1000.0
        self._links = 0
        self._sequence = 0
        self._deleted: set[str] = set()
        self._generation = 0
        self._begin_group()
        self._every_second()

    # --- time --------------------------------------------------------------------------------------------------------

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._later, (self.now + seconds, self._order, act))

    def run_until(self, moment: float) -> None:
        while self._later and self._later[0][0] <= moment:
            self.now, _, act = heapq.heappop(self._later)
            act()
        self.now = moment

    def _drawn(self, span: tuple[float, float]) -> float:
        return self.random.uniform(*span)

    def _every_second(self) -> None:
        for slot in list(self.members):
            if slot.alive:
                self._of_member(slot, slot.member.tick(self.now))
        self._train()
        if self.members[0].alive:
            self._of_barrier(self.barrier.tick(self.now))
            every_seconds = 5 if self.barrier.meeting else 30
            if self.barrier.state == "asking" or self.now - self._reported_at >= every_seconds:
                self._report()
        if not self.controller_away and (self._seen is not self.world or self._due <= self.now):
            self._reconcile()
        self.after(1.0, self._every_second)

    # --- pods --------------------------------------------------------------------------------------------------------

    def _begin_group(self) -> None:
        self._goes_down = False
        self._generation += 1
        self.members = [Slot(number, self.slots, self._generation * 1000) for number in range(self.slots)]
        self._new_barrier()
        for slot in self.members:
            self._of_member(slot, slot.member.begin())
            self._dial(slot)

    def _new_barrier(self) -> None:
        self._links += 1
        self.barrier = Barrier(f"{self._links:016x}", self.slots, self.now)
        self._reported_at = self.now
        self._slot_of: dict[int, Slot] = {}

    def _dial(self, slot: Slot) -> None:
        if not slot.alive or slot.link is not None or not self.members[0].alive or slot not in self.members:
            return
        self._links += 1
        slot.link = self._links
        self._slot_of[slot.link] = slot
        proof = slot.member.proof("")
        self._of_barrier(self.barrier.on_joined(self.now, slot.link, slot.number, f"{slot.incarnation:016x}", proof))

    def agent_dies(self, number: int) -> None:
        """The container of that slot ends, and the kubelet restarts it."""
        self._container_ends(self.members[number])

    def _container_ends(self, slot: Slot) -> None:
        if not slot.alive or slot not in self.members:
            return
        slot.alive, slot.process = False, None
        self._container_ended_at = self.now
        if slot.link is not None:
            link, slot.link = slot.link, None
            self._slot_of.pop(link, None)
            if self.members[0].alive:
                self._of_barrier(self.barrier.on_lost(link))
        if slot.number == 0:
            for other in self.members:
                other.link = None
        self.world = self.world.container_exited(slot.number, 1, self.now)
        self.after(CONTAINER_BACK_IN, lambda: self._container_back(slot))

    def _container_back(self, slot: Slot) -> None:
        if slot not in self.members or self._goes_down:
            return  # the group is recreated meanwhile
        self.world = self.world.container_back(slot.number, self.now)
        fresh = Slot(slot.number, self.slots, slot.incarnation + 1)
        self.members[slot.number] = fresh
        if fresh.number == 0:
            self._new_barrier()
        self._of_member(fresh, fresh.member.begin())
        for each in self.members if fresh.number == 0 else [fresh]:
            self._dial(each)

    def _recreate(self, uid: str) -> None:
        """The controller has deleted the Job: its pods end, and the next Job's pods begin."""
        if uid in self._deleted:
            return
        self._deleted.add(uid)
        epochs = {slot.process for slot in self.members}
        whole = len(epochs) == 1 and None not in epochs and self.barrier.state == "running"
        if whole and self.now - self._running_since > 5.0 and self.now - self._container_ended_at > 30.0:
            self.needless.append(f"Job {uid} is deleted at {self.now:.1f}, and all ranks had run for a while")
        self._goes_down = True
        for slot in self.members:
            slot.alive, slot.process = False, None
        self.world = self.world.job_deleted(self.now).all_deleted(self.now)
        self.after(GROUP_BACK_IN / 2, self._group_gone)

    def _group_gone(self) -> None:
        self.world = msgspec.structs.replace(self.world.recreated(self.now), agent=None)
        self.after(GROUP_BACK_IN / 2, self._group_back)

    def _group_back(self) -> None:
        self.world = self.world.all_ready(self.now)
        self._begin_group()

    # --- ranks -------------------------------------------------------------------------------------------------------

    def kill(self, number: int, message: str = "") -> None:
        """The process of that slot's rank is killed."""
        slot = self.members[number]
        if not slot.alive or slot.process is None:
            return
        failure = Failure(number, None, 9, message, None, f"train-node-0-{number}", f"gpu-{number}")
        end = members.RankEnd(slot.process, 0, failure)
        slot.process = None
        self._of_member(slot, slot.member.on_rank_end(self.now, end))

    def _rank_starts(self, slot: Slot, epoch: int) -> None:
        if not slot.alive:
            return
        # A container that was restarted alone begins epoch 1 as torchrun does: it belongs to no epoch of the others.
        of_group = [each for each in self.members if each.incarnation == self._generation * 1000]
        others = {each.process for each in of_group if each.process is not None} - {epoch}
        if others and epoch > 1:
            self.overlaps.append(f"epoch {epoch} starts in slot {slot.number} beside {others} at {self.now:.2f}")
        slot.process, slot.shown = epoch, RankProgress()
        self._running_since = self.now
        self._of_member(slot, slot.member.on_started(self.now, epoch))
        if self.shows.joins:
            arrives_in = self.shows.late_seconds + self._drawn(RANK_ARRIVES_IN)
            self.after(arrives_in, partial(self._arrives_at_rendezvous, slot, epoch))

    def _ranks_stop(self, slot: Slot) -> None:
        if slot.alive:
            slot.process = None
            self._of_member(slot, slot.member.on_stopped(self.now, nothing_left=True))

    # --- what they show ----------------------------------------------------------------------------------------------

    def _arrives_at_rendezvous(self, slot: Slot, epoch: int) -> None:
        if not slot.alive or slot.process != epoch or slot not in self.members or slot.number == self.shows.not_rank:
            return
        slot.shown = replace(slot.shown, arrived_at=self.now)
        self._looks(slot)
        # The others of a container that was restarted alone have joined before: they hang, and join no one.
        if self._all_show("arrived_at", epoch) and not any(each.shown.joined_at for each in self.members):
            self.after(self._drawn(RANKS_JOIN_IN), partial(self._join, epoch, tuple(self.members)))

    def _join(self, epoch: int, members_: tuple[Slot, ...]) -> None:
        """A rendezvous ends in all ranks, or in none."""
        if tuple(self.members) != members_ or not self._all_show("arrived_at", epoch):
            return
        self.joined_at.append(self.now)
        self.step = self.checkpoint
        for slot in self.members:
            slot.shown = replace(slot.shown, joined_at=self.now)
            self._looks(slot)

    def _all_show(self, what: str, epoch: int) -> bool:
        return all(each.alive and each.process == epoch and getattr(each.shown, what) for each in self.members)

    def _train(self) -> None:
        """A second of the training, which all ranks make or none."""
        epoch = self.members[0].process
        if not self.shows.steps or epoch is None or not self._all_show("joined_at", epoch):
            return
        self.step += STEPS_A_SECOND
        for slot in self.members:
            base = 0 if self.shows.absolute else self.checkpoint
            slot.shown = replace(
                slot.shown,
                step=self.step - base,
                first=slot.shown.first if slot.shown.step_at else self.checkpoint - base,
                absolute=self.shows.absolute,
                step_at=self.now,
            )
            self._looks(slot)
        if self.step - self.checkpoint >= CHECKPOINT_EVERY_STEPS and self.shows.absolute:
            self.checkpoint = self.step

    def _looks(self, slot: Slot) -> None:
        """Its agent looks at what its rank shows."""
        if slot.alive and slot.process is not None:
            self._of_member(slot, slot.member.on_progress(self.now, slot.process, [slot.shown]))

    # --- effects -----------------------------------------------------------------------------------------------------

    def _of_member(self, slot: Slot, effects: list[members.Effect]) -> None:
        for each in effects:
            match each:
                case members.StartRanks(epoch=epoch):
                    self.after(self._drawn(RANK_STARTS_IN), partial(self._rank_starts, slot, epoch))
                case members.StopRanks():
                    self.after(self._drawn(RANK_STOPS_IN), lambda: self._ranks_stop(slot))
                case members.Tell(message=message):
                    link = slot.link
                    self.after(self._drawn(LINK_SECONDS), partial(self._told, link, message))
                case members.End():
                    self.after(0.0, lambda: self._container_ends(slot))

    def _told(self, link: int | None, message: object) -> None:
        if link in self._slot_of and self.members[0].alive:
            self._of_barrier(self.barrier.on_message(self.now, link, message))  # type: ignore[arg-type]

    def _of_barrier(self, effects: list[barriers.Effect]) -> None:
        for each in effects:
            match each:
                case barriers.Send(link=link, message=message):
                    self.after(self._drawn(LINK_SECONDS), partial(self._heard, link, message))
                case barriers.Close(link=link):
                    slot = self._slot_of.pop(link, None)
                    if slot is not None and slot.link == link:
                        slot.link = None
                        self.after(1.0, partial(self._dial, slot))
                case barriers.ReportNow():
                    self.after(0.0, self._report)

    def _heard(self, link: int, message: object) -> None:
        slot = self._slot_of.get(link)
        if slot is None or not slot.alive or slot.link != link:
            return
        if hasattr(message, "barrier"):
            self._of_member(slot, slot.member.on_welcome(self.now, message))  # type: ignore[arg-type]
        else:
            self._of_member(slot, slot.member.on_message(self.now, message))  # type: ignore[arg-type]

    # --- reports and answers -----------------------------------------------------------------------------------------

    def _report(self) -> None:
        if not self.members[0].alive:
            return
        self._reported_at = self.now
        for ended in self.barrier.report(self.now)["ended"]:  # type: ignore[attr-defined]
            known = any((each.barrier, each.epoch) == (self.barrier.identity, ended["epoch"]) for each in self.starts)
            if ended["by"] is not None and not known:
                began = Start(self.now, self.world.job.uid, self.barrier.identity, ended["epoch"], ended["by"])
                self.starts.append(began)
        if self.reports_lost:
            self.reports_lost -= 1
            return
        report, barrier = self.barrier.report(self.now), self.barrier
        self.after(self._drawn(REPORT_SECONDS), lambda: self._arrives(barrier, report))

    def _arrives(self, barrier: Barrier, report: dict[str, object]) -> None:
        if self.controller_away or barrier is not self.barrier or not self.members[0].alive:
            return
        self._sequence += 1
        self.arrived |= {(barrier.identity, each["epoch"]) for each in report["ended"] if each["by"]}  # type: ignore
        facts = read_report(
            json.dumps(report).encode(),
            job_uid=self.world.job.uid,
            pod_uid=self.world.pod(0).uid,
            received_at=at(self.now),
            sequence=self._sequence,
        )
        reads = self._seen is self.world
        self.world = msgspec.structs.replace(self.world, agent=facts)
        self._seen = self.world if reads else self._seen
        self.exchange.reported(_KEY, facts)
        answer = self._answer()
        epoch = report["epoch"]
        self.after(self._drawn(REPORT_SECONDS), lambda: self._answered(barrier, epoch, answer))  # type: ignore[arg-type]

    def _answered(self, barrier: Barrier, epoch: int, answer: AgentAnswer) -> None:
        if barrier is not self.barrier or not self.members[0].alive:
            return
        self.permitted_alone.append((self.now, answer.alone if answer.permitted else 0))
        action = answer.action
        self._of_barrier(
            barrier.on_answer(
                self.now,
                epoch,
                ReportAnswer(
                    answer.permitted,
                    answer.alone,
                    answer.in_place_seconds,
                    answer.every_seconds,
                    None if action is None else Action(action.barrier, action.epoch, action.do is AgentOrder.RESTART),
                ),
            )
        )

    @property
    def _policy(self) -> Policy:
        assert isinstance(self.controller.policy, Policy)
        return self.controller.policy

    def _reconcile(self) -> None:
        """Reconciles until nothing is due, and does what the plans say to the pods."""
        for _ in range(12):
            before = self.controller.ledger
            plan = self.controller.reconcile(self.world, self.now)
            self._count_decided(before, self.controller.ledger)
            closing = self.controller.ledger.incident is not None and self.controller.ledger.incident.closing
            for each in self.controller.triggers:
                self._recreate(each.uid)
            if not closing and (plan.requeue_at is None or plan.requeue_at > at(self.now)):
                self._seen = self.world
                due = plan.requeue_at
                self._due = math.inf if due is None else (due - at(0)).total_seconds()
                return self._decided_on_report()
        raise AssertionError("the group is reconciled without end")

    def _decided_on_report(self) -> None:
        """As the reconciler does: the answer, and whether the incident goes on."""
        agent, ledger = self.world.agent, self.controller.ledger
        if agent is not None:
            answer = self.answers(self.world.snapshot(), ledger, self._policy, at(self.now))
            self.exchange.answer(_KEY, agent.sequence, answer, incident_open=ledger.incident is not None)

    def _answer(self) -> AgentAnswer:
        """What the endpoint sends."""
        assert self.world.agent is not None, "it has just come"
        known = self.exchange.known_answer(_KEY, self.world.agent.sequence)
        assert known is not None, "each report is answered at once here"
        return known

    def _count_decided(self, before: Ledger, after: Ledger) -> None:
        self.handled.update(after.handled.keys)
        incident = after.incident
        if incident is None or after.epoch == before.epoch or incident.attempt is None:
            return
        if incident.attempt.action is AttemptAction.RESTART_IN_PLACE:
            self.decided[incident.target.epoch] += 1
