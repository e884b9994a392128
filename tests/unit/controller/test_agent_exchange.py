"""Reports in, reconciles and answers out."""

import asyncio

import msgspec
import pytest

from recovery.controller.agent_exchange import AgentExchange
from recovery.core.model.agent_facts import AgentAnswer, AgentFacts, AgentState
from recovery.core.model.facts import GroupKey
from tests.unit.core.agents import ended, reported
from tests.unit.core.groups import training
from tests.unit.core.world import at

KEY = GroupKey("ml", "train")
PERMITTED = AgentAnswer(permitted=True, alone=3)


class Woken(AgentExchange):
    """An exchange that counts the reconciles that it asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.times = 0
        self.subscribe(self._woken)

    def _woken(self, key: GroupKey, facts: AgentFacts) -> None:
        assert (key, facts.job_uid) == (KEY, "job-1")
        self.times += 1


def report(sequence: int, state: AgentState = AgentState.RUNNING, **changes: object) -> AgentFacts:
    facts = reported(training(), state, float(sequence)).agent
    assert facts is not None
    return msgspec.structs.replace(facts, **{"sequence": sequence, **changes})


async def test_a_report_is_answered_by_the_reconcile_that_knew_it() -> None:
    exchange = Woken()
    exchange.reported(KEY, report(1))
    asked = asyncio.create_task(exchange.answer_to(KEY, 1, 45))
    await asyncio.sleep(0)
    assert not asked.done()
    exchange.answer(KEY, 1, PERMITTED)
    assert await asked == PERMITTED
    assert exchange.times == 1


async def test_an_answer_to_an_earlier_report_is_none() -> None:
    exchange = Woken()
    exchange.reported(KEY, report(1))
    exchange.answer(KEY, 1, PERMITTED)
    exchange.reported(KEY, report(2, AgentState.ASKING))
    assert await exchange.answer_to(KEY, 2, 0.01) is None


async def test_a_report_that_says_nothing_new_is_answered_without_a_reconcile() -> None:
    exchange = Woken()
    exchange.reported(KEY, report(1))
    exchange.answer(KEY, 1, PERMITTED)
    for sequence in range(2, 12):
        exchange.reported(KEY, report(sequence))
        assert await exchange.answer_to(KEY, sequence, 0.01) == PERMITTED
    assert exchange.times == 1
    facts = exchange.facts(KEY)
    assert facts is not None
    assert facts.received_at == at(11), "it is known that the agents still report"


async def test_a_later_reconcile_changes_the_answer_to_the_same_report() -> None:
    exchange = Woken()
    exchange.reported(KEY, report(1))
    exchange.answer(KEY, 1, PERMITTED)
    exchange.reported(KEY, report(2))
    exchange.answer(KEY, 2, AgentAnswer())
    exchange.reported(KEY, report(3))
    assert await exchange.answer_to(KEY, 3, 0.01) == AgentAnswer()


@pytest.mark.parametrize(
    "changes",
    [
        {"missing": (2,), "missing_count": 1},
        {"epoch": 2},
        {"barrier": "00000000000000b2"},
        {"ended": (ended(1, 0),)},
        {"state": AgentState.ASKING},
    ],
    ids=str,
)
def test_what_is_new_wakes_the_group(changes: dict[str, object]) -> None:
    exchange = Woken()
    exchange.reported(KEY, report(1))
    exchange.answer(KEY, 1, PERMITTED)
    exchange.reported(KEY, report(2, **changes))  # type: ignore[arg-type]
    assert exchange.times == 2


def test_agents_that_ask_wake_the_group_each_time() -> None:
    exchange = Woken()
    for sequence in (1, 2, 3):
        exchange.reported(KEY, report(sequence, AgentState.ASKING))
        exchange.answer(KEY, sequence, PERMITTED)
    assert exchange.times == 3


def test_an_older_report_of_the_same_job_changes_nothing() -> None:
    exchange = Woken()
    exchange.reported(KEY, report(2, epoch=2))
    exchange.reported(KEY, report(1))
    facts = exchange.facts(KEY)
    assert facts is not None
    assert facts.epoch == 2


async def test_nothing_is_kept_of_a_group_that_is_gone() -> None:
    exchange = Woken()
    exchange.reported(KEY, report(1))
    exchange.answer(KEY, 1, PERMITTED)
    exchange.forget(KEY)
    assert exchange.facts(KEY) is None
    assert await exchange.answer_to(KEY, 1, 0.01) is None


def test_every_report_is_heard_before_it_wakes_a_reconcile() -> None:
    """The reconcile may close the incident that a rendezvous belongs to."""
    exchange, said = AgentExchange(), []
    exchange.subscribe(lambda _, __: said.append("wakes"), lambda _, facts: said.append(f"heard {facts.sequence}"))
    exchange.reported(KEY, report(2))
    exchange.answer(KEY, 2, PERMITTED)
    for sequence in (1, 3):  # an older one, and one that says the same
        exchange.reported(KEY, report(sequence))
    assert said == ["heard 2", "wakes", "heard 3"]


async def test_while_an_incident_is_open_each_report_is_reconciled() -> None:
    """Whether it says that the ranks have joined, or how far they train, is for the decision to judge."""
    exchange = Woken()
    exchange.reported(KEY, report(1))
    exchange.answer(KEY, 1, PERMITTED, incident_open=True)
    exchange.reported(KEY, report(2))
    assert exchange.times == 2
    exchange.answer(KEY, 2, PERMITTED, incident_open=False)
    exchange.reported(KEY, report(3))
    assert exchange.times == 2
