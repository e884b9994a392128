"""The account of a stop for which a suspension is the reason, although the ranks stop after it."""

import pytest

from recovery.ports import PODS
from recovery.sim.trials.lost_time import Account
from tests.simulation.trials.checker_case import CONTROLLER
from tests.simulation.trials.test_checkers_booked_time import Books


@pytest.mark.parametrize(
    ("going", "account"), [(True, "starts after: suspended"), (False, Account.UNEXPLAINED)], ids=["going", "not"]
)
def test_a_suspension_ends_a_run_whose_pods_are_being_deleted_even_if_they_end_later(going: bool, account: str) -> None:
    """The pods save until 1012, and the suspension lasts for a second. A pod of the next run fails at 1020."""
    books = Books((950.0, 1012.0), (1042.0, None))
    books.case.now = 1002
    for index in (0, 1) if going else ():
        books.case.delete(PODS, f"llm-node-0-{index}", by=CONTROLLER)
    for moment, suspended in ((1008, True), (1009, False)):
        books.case.now = moment
        books.case.annotate(suspend=suspended)
    for index in (0, 1):
        books.case.now = 1012
        books.case.drop(PODS, f"llm-node-0-{index}")
        books.case.pod(index, "job-1")
        books.case.runs(index)
    books.case.now = 1020
    books.case.fails(1, 143)
    assert books.accounts()[account] > 20
