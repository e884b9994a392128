"""Stops that show only on ranks that a user has since removed from their Job."""

import pytest

from recovery.ports import PODS
from recovery.sim.trials.lost_time import Account
from tests.simulation.trials.checker_case import closed, opened, stamp
from tests.simulation.trials.test_checkers_booked_time import Books, stopped


def fails_and_is_resized(size: int, *, resized_at: float = 1010) -> Books:
    """Rank 1 of two fails. A user gives the Job another size, and the pod of rank 1 stays. Later, rank 0 is lost."""
    books = stopped(until=1200)
    ended = {"name": "node", "state": {"terminated": {"exitCode": 137, "finishedAt": stamp(1000)}}}
    books.case.put(PODS, "llm-node-0-1", {"status": {"phase": "Failed", "containerStatuses": [ended]}}, by="kubelet")
    books.case.now = resized_at
    books.case.job("job-1", parallelism=size, completions=size)
    return books.writes(1101, opened(1100)).writes(1201, closed(opened(1100), 1200))


@pytest.mark.parametrize(
    ("size", "resized_at", "account"),
    [(1, 1010, Account.UNREADABLE), (3, 1010, Account.UNEXPLAINED), (1, 1102, Account.UNEXPLAINED)],
    ids=["removed", "still a member", "removed after the incident was opened"],
)
def test_the_end_of_a_rank_that_a_user_has_removed_is_no_loss(size: int, resized_at: float, account: str) -> None:
    """Seed 3027: no controller leads from the failure until the Job has its new size."""
    books = fails_and_is_resized(size, resized_at=resized_at)
    assert books.accounts()[account] == pytest.approx(99.6)
    assert (books.found == []) == (account == Account.UNREADABLE)
