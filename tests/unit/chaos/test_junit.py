"""A run as JUnit XML: a test case for each repeat, which CI shows as it shows other tests."""

from xml.etree import ElementTree

import msgspec
import pytest

from recovery.chaos.chaos_run import RunOutcome
from recovery.chaos.junit import junit_xml
from recovery.core.model.drill import DrillCase, DrillVerdict
from recovery.core.model.reason import Reason

PASSED = DrillCase(1, DrillVerdict.PASSED, Reason.DRILL_AS_EXPECTED, "as expected", recovery_seconds=42.5)
DONE = RunOutcome("lose-a-rank-x7k2p", Reason.DRILL_DONE, "done", DrillVerdict.PASSED, "done", (PASSED,), False, ())


def suite(outcome: RunOutcome, repeats: int = 1) -> ElementTree.Element:
    return ElementTree.fromstring(junit_xml(outcome, "lose-a-rank", "research/llm", repeats))


def case(verdict: DrillVerdict, number: int = 1, message: str = "why") -> DrillCase:
    return DrillCase(number, verdict, Reason.DRILL_TOO_SLOW, message)


def test_a_repeat_that_passed_has_the_time_of_its_incident() -> None:
    found = suite(DONE)
    [test] = found
    assert (found.get("tests"), found.get("failures"), found.get("errors")) == ("1", "0", "0")
    assert (test.get("classname"), test.get("name")) == ("research/llm", "lose-a-rank repeat 1")
    assert (test.get("time"), found.get("time"), list(test)) == ("42.500", "42.500", [])


@pytest.mark.parametrize(
    ("verdict", "element"),
    [(DrillVerdict.FAILED, "failure"), (DrillVerdict.ABORTED, "error"), (DrillVerdict.INCONCLUSIVE, "error")],
)
def test_a_repeat_that_did_not_pass_says_why(verdict: DrillVerdict, element: str) -> None:
    found = suite(msgspec.structs.replace(DONE, verdict=verdict, cases=(case(verdict),)))
    [[why]] = found
    assert (why.tag, why.get("message"), why.get("type")) == (element, "why", "DrillTooSlow")


def test_repeats_that_were_not_run_are_skipped_and_counted() -> None:
    found = suite(
        msgspec.structs.replace(DONE, verdict=DrillVerdict.FAILED, cases=(case(DrillVerdict.FAILED),)), repeats=3
    )
    assert (found.get("tests"), found.get("failures"), found.get("skipped")) == ("3", "1", "2")


@pytest.mark.parametrize("cases", [(), (PASSED,)], ids=["at once", "between repeats"])
def test_a_run_that_was_stopped_is_an_error_even_if_no_repeat_is(cases: tuple[DrillCase, ...]) -> None:
    stopped = msgspec.structs.replace(
        DONE, reason=Reason.GLOBAL_PAUSE, verdict=DrillVerdict.ABORTED, verdict_message="all is paused", cases=cases
    )
    found = suite(stopped, repeats=2)
    [error] = found.findall("testcase/error")
    assert (found.get("errors"), error.get("message")) == ("1", "all is paused")


def test_messages_of_strangers_do_not_break_the_xml() -> None:
    found = suite(
        msgspec.structs.replace(DONE, cases=(case(DrillVerdict.FAILED, message='<a> & "b" \x00\x1b[31m \ufffe'),))
    )
    [[why]] = found
    assert (why.get("message") or "").startswith('<a> & "b"')
