"""What agents have reported and what they are answered, by group, between the endpoint and the reconciler.

A report wakes the reconcile of its group. The reconcile answers after it has written the ledger, so an answer never
permits what the ledger does not have. All of it runs in one event loop.
"""

import asyncio
from collections.abc import Callable

from recovery.core.model.agent_facts import AgentAnswer, AgentFacts, AgentState
from recovery.core.model.facts import GroupKey


class AgentExchange:
    """The latest report and the latest answer of each group. Nothing of it survives a term: agents report their full
    state again within 30 seconds."""

    def __init__(self) -> None:
        self.parameters_in: str | None = None
        """The namespace with the parameters of the component. None: this process answers no agents, so it does not know
        the component."""
        self._wake: Callable[[GroupKey, AgentFacts], None] = lambda key, facts: None
        self._heard: Callable[[GroupKey, AgentFacts], None] = lambda key, facts: None
        self._facts: dict[GroupKey, AgentFacts] = {}
        self._answers: dict[GroupKey, tuple[int, AgentAnswer]] = {}
        self._open: set[GroupKey] = set()
        """The groups with an open incident. It may end, or go on, with whatever a report says."""
        self._waiting: dict[GroupKey, set[asyncio.Event]] = {}

    def subscribe(
        self,
        wake: Callable[[GroupKey, AgentFacts], None],
        heard: Callable[[GroupKey, AgentFacts], None] = lambda key, facts: None,
    ) -> None:
        """`wake` is called with each report that says something new, so that its group is reconciled. `heard` is called
        with every report, before that."""
        self._wake = wake
        self._heard = heard

    def begin_term(self) -> None:
        """Forget what an earlier term of this process has heard. Another leader has acted since: an old report would
        show a process as lost that runs again."""
        self._facts.clear()
        self._answers.clear()
        self._open.clear()

    def reported(self, key: GroupKey, facts: AgentFacts) -> None:
        """Take in a report. An older one than the present one of the same Job changes nothing."""
        known = self._facts.get(key)
        if known is not None and known.job_uid == facts.job_uid and facts.sequence <= known.sequence:
            return
        self._facts[key] = facts
        self._heard(key, facts)
        answered = self._answers.get(key)
        if (
            known is not None
            and answered is not None
            and answered[0] == known.sequence
            and key not in self._open
            and _says_the_same(known, facts)
        ):
            self.answer(key, facts.sequence, answered[1])
        else:
            self._wake(key, facts)

    def facts(self, key: GroupKey) -> AgentFacts | None:
        """The latest report of the group. None: there is none."""
        return self._facts.get(key)

    def answer(self, key: GroupKey, sequence: int, answer: AgentAnswer, *, incident_open: bool = False) -> None:
        """A reconcile that knew the report with that sequence number has decided."""
        self._answers[key] = (sequence, answer)
        (self._open.add if incident_open else self._open.discard)(key)
        for event in self._waiting.get(key, ()):
            event.set()

    def known_answer(self, key: GroupKey, sequence: int) -> AgentAnswer | None:
        """The answer of a reconcile that knew that report, or a later one. None: there is none yet."""
        known = self._answers.get(key)
        return known[1] if known is not None and known[0] >= sequence else None

    async def answer_to(self, key: GroupKey, sequence: int, timeout_seconds: float) -> AgentAnswer | None:
        """The answer of a reconcile that knew that report, or a later one. None: there is none within that time."""
        event = asyncio.Event()
        waiting = self._waiting.setdefault(key, set())
        waiting.add(event)
        try:
            async with asyncio.timeout(timeout_seconds):
                while True:
                    if (known := self.known_answer(key, sequence)) is not None:
                        return known
                    event.clear()
                    await event.wait()
        except TimeoutError:
            return None
        finally:
            waiting.discard(event)
            if not waiting:
                self._waiting.pop(key, None)

    def forget(self, key: GroupKey) -> None:
        """The group is gone."""
        self._facts.pop(key, None)
        self._answers.pop(key, None)
        self._open.discard(key)


def _says_the_same(one: AgentFacts, other: AgentFacts) -> bool:
    """Both reports are of a group that trains without an open incident, and show the same of it. Every other change of
    the group, of its policy or of its ledger brings a reconcile, which answers again."""
    return one.state is other.state is AgentState.RUNNING and _shown(one) == _shown(other)


def _shown(facts: AgentFacts) -> tuple[object, ...]:
    """What a report shows, without dates: those are made from ages, and differ by the way of the report."""
    ended = tuple((each.epoch, each.slot, each.by) for each in facts.ended)
    links = (facts.missing_count, facts.missing, facts.restarted, facts.stuck)
    return facts.job_uid, facts.pod_uid, facts.barrier, facts.epoch, facts.slots, *links, ended
