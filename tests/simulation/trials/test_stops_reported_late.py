"""Stops that a kubelet reports only when its node is back, so that little time is left to act on them."""

import pytest

from recovery.ports import PODS
from recovery.sim.trials.faults import FaultKind
from recovery.sim.trials.lost_time import Account
from tests.simulation.trials.checker_case import stamp
from tests.simulation.trials.test_checkers_booked_time import Books, stopped


def reported_late(*, gone: bool = True) -> Books:
    """The node loses power. When it is back, its kubelet reports the end of the process, and the container runs again.
    Ten seconds later the Job has failed and its pods are gone."""
    books = stopped()
    books.case.now = 1020
    ended = {"terminated": {"exitCode": 137, "finishedAt": stamp(1000)}}
    runs = {"name": "node", "restartCount": 1, "state": {"running": {"startedAt": stamp(1020)}}, "lastState": ended}
    books.case.put(PODS, "llm-node-0-1", {"status": {"containerStatuses": [runs]}}, by="kubelet")
    if gone:
        books.case.now = 1030
        books.case.drop(PODS, "llm-node-0-1")
    return books


@pytest.mark.parametrize(
    ("gone", "held_up_at", "account"),
    [
        (True, 1022.0, Account.UNWATCHED),
        (True, 1022.1, Account.UNEXPLAINED),
        (False, 1020.0, Account.UNEXPLAINED),
    ],
    ids=["all but 2 s", "not", "the pod still shows it"],
)
def test_a_stop_that_a_controller_could_read_of_for_a_moment_only(gone: bool, held_up_at: float, account: str) -> None:
    """Seed 8571: a request takes longer than the pods exist."""
    books = reported_late(gone=gone).hits(FaultKind.TIMEOUT, held_up_at, 30, actor="controller-0")
    assert books.accounts() == {account: 19.6}
    assert (books.found == []) == (account == Account.UNWATCHED)
