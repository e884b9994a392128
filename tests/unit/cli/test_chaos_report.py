"""The table of the repeats of a drill."""

from recovery.cli.chaos_report import case_lines
from recovery.core.model.drill import DrillCase, DrillVerdict
from recovery.core.model.reason import Reason


def test_the_phases_stand_in_the_order_in_which_an_incident_goes_through_them() -> None:
    """An API server sorts the keys of a map."""
    seconds = {"Decided": 0.14, "Detected": 1.0, "Resuming": 9.0, "TearingDown": 3.0}
    case = DrillCase(1, DrillVerdict.PASSED, Reason.DRILL_AS_EXPECTED, seconds_by_phase=seconds)
    [_, row, _] = case_lines([case])
    assert row.endswith("Detected 1.0s, Decided 0.1s, TearingDown 3.0s, Resuming 9.0s")
