"""One drawn history of a group with agents: its faults, and what must be true of it whatever happened."""

from collections.abc import Iterator
from random import Random

import msgspec

from recovery.core.model.ledger import AttemptAction, Incident, Phase
from recovery.core.policy.resolved import InPlace, Policy
from recovery.core.policy.spec import Mode
from tests.simulation.agents.model import Cluster, Shows, Start
from tests.unit.core.driver import Controller, policy
from tests.unit.core.world import at

FAULTS_UNTIL = 900.0
QUIET_UNTIL = 2400.0
"""Long enough for a permission that no one renews, and for a group that is recreated after it."""


class Walk:
    """The history of one seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.seed = seed
        self.policy = _drawn_policy(self.random)
        self.cluster = Cluster(self.policy, self.random, shows=_drawn_shows(self.random))
        self.faults: list[str] = []

    def run(self) -> None:
        self.cluster.run_until(5.0)
        now = 5.0
        while now < FAULTS_UNTIL:
            now += self.random.choice((0.3, 1.0, 5.0, 40.0, 120.0)) * self.random.uniform(0.5, 1.5)
            self.cluster.run_until(now)
            self._fault()
        self.cluster.controller_away, self.cluster.reports_lost = False, 0
        self.cluster.run_until(QUIET_UNTIL)

    def _fault(self) -> None:
        name, act = self.random.choice(
            (
                ("kill", self._kill),
                ("kill", self._kill),
                ("kill again", self._kill_twice),
                ("agent dies", lambda: self.cluster.agent_dies(self._slot())),
                ("controller away", self._controller_away),
                ("controller restarts", self._controller_restarts),
                ("reports lost", self._reports_lost),
            )
        )
        self.faults.append(f"{self.cluster.now:.1f} {name}")
        act()

    def _slot(self) -> int:
        return self.random.randrange(self.cluster.slots)

    def _kill(self) -> None:
        self.cluster.kill(self._slot(), self.random.choice(("", "", "", "RuntimeError: the same again")))

    def _kill_twice(self) -> None:
        self._kill()
        self.cluster.after(self.random.uniform(0.0, 1.0), self._kill)

    def _controller_away(self) -> None:
        self.cluster.controller_away = True
        self.cluster.after(self.random.choice((5.0, 60.0, 200.0)), self._controller_back)

    def _controller_back(self) -> None:
        self.cluster.controller_away = False

    def _controller_restarts(self) -> None:
        """The next leader has the ledger, and no report until the next one comes."""
        cluster = self.cluster
        before = cluster.controller
        cluster.controller = Controller(before.policy, before.ledger)
        cluster.controller.done = before.done
        cluster.world = msgspec.structs.replace(cluster.world, agent=None)
        cluster.exchange.begin_term()

    def _reports_lost(self) -> None:
        self.cluster.reports_lost = self.random.choice((1, 3, 10))

    # --- what must be true -------------------------------------------------------------------------------------------

    def violations(self) -> Iterator[str]:
        """What is wrong with the history, as sentences."""
        cluster, ledger = self.cluster, self.cluster.controller.ledger
        yield from cluster.overlaps
        yield from cluster.needless
        left_to_a_person = ledger.phase is Phase.HELD or self.policy.mode is Mode.OBSERVE
        if ledger.incident is not None and not left_to_a_person:
            yield f"an incident is still open in phase {ledger.phase}: {ledger.message}"
        if any(slot.process is None for slot in cluster.members):
            yield "a rank has no process at the end"
        if not left_to_a_person and len({slot.process for slot in cluster.members}) > 1 and self._bound_together():
            yield f"the ranks are in several epochs: {[slot.process for slot in cluster.members]}"
        yield from self._of_starts()
        yield from self._of_ends()
        never = not self.policy.in_place.enabled or self.policy.mode is Mode.OBSERVE
        if never and cluster.starts:
            yield f"restarted in place without a permission: {cluster.starts[0]}"

    def _bound_together(self) -> bool:
        """No container was restarted alone, so all agents still belong to one barrier."""
        return all(slot.member.bound == self.cluster.barrier.identity for slot in self.cluster.members)

    def _of_starts(self) -> Iterator[str]:
        """Each restart in place is in the ledger once, and was permitted."""
        cluster, begun = self.cluster, set()
        for start in cluster.starts:
            name = f"{start.barrier}/{start.epoch}"
            begun.add(name)
            permitted = any(alone > 0 for at, alone in cluster.permitted_alone if at <= start.at)
            if start.by == "Alone" and not permitted:
                yield f"{name} was restarted alone, and nothing permitted that"
            if cluster.decided[name] > 1 or not (cluster.decided[name] or self._is_known(start, name)):
                yield f"{name} was restarted ({start.by}), and is {cluster.decided[name]} times in the ledger"
        for name in cluster.decided:
            if name not in begun and not any(self._was_given_up(each, name) for each in self._incidents()):
                yield f"{name} is in the ledger, and no agent restarted it"

    def _of_ends(self) -> Iterator[str]:
        """An incident that agents have verified ended after all ranks had joined. (One that was found when all had met
        again has no length.)"""
        for incident in self.cluster.controller.recorded:
            closing = incident.closing
            if closing is None or closing.source != "agent" or not closing.verified:
                continue
            began, ended = ((each - at(0)).total_seconds() for each in (incident.started_at, closing.ended_at))
            joined = [each for each in self.cluster.joined_at if began <= each <= ended + 0.001]
            if began < ended and not joined:
                yield f"incident {incident.id} has recovered at {ended:.1f}, and no ranks had joined since {began:.1f}"

    def _is_known(self, start: Start, name: str) -> bool:
        """The restart is no attempt of the ledger, and need not be: the agents made it alone, and either the end before
        it is part of an incident about more, or the barrier ended before a report of it arrived."""
        if start.by != "Alone":
            return False
        unheard = (start.barrier, start.epoch) not in self.cluster.arrived
        return unheard or any(key.endswith(f"/epoch/{name}") for key in self.cluster.handled)

    def _incidents(self) -> Iterator[Incident]:
        yield from self.cluster.controller.recorded
        if self.cluster.controller.ledger.incident is not None:
            yield self.cluster.controller.ledger.incident

    @staticmethod
    def _was_given_up(incident: Incident, name: str) -> bool:
        """The group was recreated, or held, or its container was restarted, before the agents had the answer."""
        return incident.target.epoch != name or incident.attempts[-1].action is not AttemptAction.RESTART_IN_PLACE


def _drawn_shows(random: Random) -> Shows:
    joins = random.random() < 0.7
    return Shows(
        joins=joins,
        late_seconds=random.choice((0.0, 0.0, 0.0, 90.0)),
        not_rank=2 if random.random() < 0.1 else None,
        steps=joins and random.random() < 0.6,
        absolute=random.random() < 0.7,
    )


def _drawn_policy(random: Random) -> Policy:
    enabled = random.random() < 0.85
    mode = Mode.ENFORCE if random.random() < 0.9 else Mode.OBSERVE
    drawn: Policy = policy(mode, limit=random.choice((1, 10, 100)))
    in_place = InPlace(enabled=enabled, alone=random.choice((0, 1, 3)), max_in_a_row=random.choice((1, 3, 10)))
    return msgspec.structs.replace(drawn, in_place=in_place)
