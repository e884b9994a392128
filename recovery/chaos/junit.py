"""The result of a run as JUnit XML, for CI. Pure. Each repeat is a test case, and its time is that of its incidents."""

from xml.etree import ElementTree

from recovery.chaos.chaos_run import RunOutcome
from recovery.core.model.drill import DrillCase, DrillVerdict

_FAILED = {DrillVerdict.FAILED: "failure", DrillVerdict.ABORTED: "error", DrillVerdict.INCONCLUSIVE: "error"}
"""The element of a case that did not pass."""


def junit_xml(outcome: RunOutcome, experiment: str, job: str, repeats: int) -> str:
    """`repeats`: as many test cases. Those that were not run are skipped, and say why."""
    cases = {each.repeat: each for each in outcome.cases}
    suite = ElementTree.Element("testsuite", name=_text(f"recovery chaos {experiment}"))
    for number in range(1, repeats + 1):
        _add(suite, job, experiment, number, cases.get(number), outcome)
    if outcome.verdict is not DrillVerdict.PASSED and not any(each.verdict in _FAILED for each in outcome.cases):
        # The run was stopped between repeats, or before its first result: CI must not take it for a success.
        case = ElementTree.SubElement(
            suite, "testcase", classname=_text(job), name=_text(f"{experiment} run"), time="0"
        )
        message = _text(outcome.verdict_message)
        ElementTree.SubElement(case, "error", message=message, type=str(outcome.reason))
    counted = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    suite.set("tests", str(len(suite)))
    for name, element in counted.items():
        suite.set(name, str(len(suite.findall(f"testcase/{element}"))))
    suite.set("time", f"{sum(each.recovery_seconds or 0.0 for each in outcome.cases):.3f}")
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)


def _add(
    suite: ElementTree.Element, job: str, experiment: str, number: int, case: DrillCase | None, outcome: RunOutcome
) -> None:
    seconds = case.recovery_seconds if case is not None else None
    element = ElementTree.SubElement(
        suite,
        "testcase",
        classname=_text(job),
        name=_text(f"{experiment} repeat {number}"),
        time=f"{seconds or 0.0:.3f}",
    )
    if case is None:
        ElementTree.SubElement(element, "skipped", message=_text(outcome.message))
    elif case.verdict in _FAILED:
        ElementTree.SubElement(element, _FAILED[case.verdict], message=_text(case.message), type=str(case.reason))


def _text(text: str) -> str:
    """Without the control characters that XML 1.0 forbids. Messages come from pods and webhooks."""
    return "".join(each if each.isprintable() else " " for each in text)
