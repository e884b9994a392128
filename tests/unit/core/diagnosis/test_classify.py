"""Root and cascade: which of several losses is the cause, which node is suspected, and which losses only follow."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.core.diagnosis.classify import NORMALISED_MAX, Disruption, classify, normalised_message, step_in
from recovery.core.diagnosis.evidence import Evidence, LossKind
from recovery.core.model.facts import Condition, Snapshot
from tests.unit.core.signs import GROUP, around, died, job_failing, lost
from tests.unit.core.world import at

WELL = around()
WATCHDOG = "[rank5]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=48211)"
RESET = "ncclRemoteError: Connection closed by remote peer, connection reset by peer"
ERROR = "Traceback (most recent call last):\nKeyError: 'labels'"
XID = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus"

RESTARTED = LossKind.CONTAINER_RESTARTED


def deleted(index: int, seconds: float) -> Evidence:
    return lost(LossKind.POD_DELETED, index=index, seconds=seconds)


def judged(*evidence: Evidence, snapshot: Snapshot = WELL) -> Disruption:
    """Classifies the evidence. The result is the same in any order of the evidence."""
    disruption = classify(evidence, snapshot)
    assert classify(evidence[::-1], snapshot) == disruption
    return disruption


def causes(disruption: Disruption) -> list[int | None]:
    """The ranks of the causes, root first. If all evidence is a consequence, the ranks of all of it."""
    found = [finding for finding in disruption.findings if not finding.cascade] or disruption.findings
    return [finding.evidence.pod.index for finding in found if finding.evidence.pod is not None]


CASES: dict[str, tuple[list[Evidence], list[int], str, str]] = {
    "a peer's exit before the others' time-outs": (
        [died(1, ERROR, index=7, seconds=0), *(died(134, WATCHDOG, index=i, seconds=600 + i) for i in range(4))],
        *([7], "UserError", "LookupError"),
    ),
    "a peer that exits without a word before the others' time-outs": (
        [died(1, index=7, seconds=0), *(died(134, WATCHDOG, index=i, seconds=600) for i in range(4))],
        *([7], "Unknown", "Exit1"),
    ),
    "a time-out that is dated before the loss it waited for": (
        [died(134, WATCHDOG, index=0, seconds=0), deleted(5, 1)],
        *([5], "PodDeleted", "PodDeleted"),
    ),
    "connections reset by the loss of a pod": (
        [deleted(3, 1), died(1, RESET, index=2, seconds=0), died(1, RESET, index=4, seconds=2)],
        *([3], "PodDeleted", "PodDeleted"),
    ),
    "exits without a word, seconds after a loss": (
        [deleted(3, 0), died(1, index=2, seconds=3), died(139, index=4, seconds=29)],
        *([3], "PodDeleted", "PodDeleted"),
    ),
    "a chain of exits, each soon after the one before": (
        [died(1, index=index, seconds=20 * index) for index in range(5)],
        *([0], "Unknown", "Exit1"),
    ),
    "an exit without a word, long after a loss: another cause": (
        [deleted(3, 0), died(1, index=2, seconds=31)],
        *([3, 2], "PodDeleted", "PodDeleted"),
    ),
    "an abort without a word, long after a loss: NCCL's watchdog": (
        [deleted(3, 0), died(134, index=2, seconds=605)],
        *([3], "PodDeleted", "PodDeleted"),
    ),
    "an exit code that was chosen to say something": (
        [died(1, index=2, seconds=0), died(42, index=4, seconds=3), died(43, index=1, seconds=0)],
        *([1, 4], "Unknown", "Exit43"),
    ),
    "an exit with an error of its own": (
        [died(1, index=2, seconds=0), died(1, "RuntimeError: shapes differ", index=4, seconds=3)],
        *([2, 4], "Unknown", "Exit1"),
    ),
    "an exit without a word in the very second of a loss that is known": (
        [deleted(3, 0.4), died(1, index=2, seconds=0)],
        *([3], "PodDeleted", "PodDeleted"),
    ),
    "exits without a word within one second: no one knows which was first": (
        [died(1, index=2, seconds=0), died(1, index=4, seconds=0)],
        *([2, 4], "Unknown", "Exit1"),
    ),
    "the same rank again is no consequence of itself": (
        [died(1, index=2, seconds=0, kind=RESTARTED), died(1, index=2, seconds=5, kind=RESTARTED)],
        *([2, 2], "Unknown", "Exit1"),
    ),
    "two errors of the script": (
        [died(1, ERROR, index=2, seconds=1), died(1, ERROR, index=1, seconds=0)],
        *([1, 2], "UserError", "LookupError"),
    ),
    "a fault of a GPU, found after another rank was lost": (
        [deleted(3, 0), died(1, XID, index=2, seconds=3)],
        *([3, 2], "PodDeleted", "PodDeleted"),
    ),
    "the Job that fails of it": (
        [job_failing(-5), died(1, index=2, seconds=0)],
        *([2], "Unknown", "Exit1"),
    ),
    "the Job that fails, and ranks that only waited": (
        [job_failing(-5), died(134, WATCHDOG, index=2, seconds=0)],
        *([2], "CommunicationFailure", "NcclWatchdog"),
    ),
    "nothing but time-outs: the earliest": (
        [died(134, WATCHDOG, index=index, seconds=9 - index) for index in range(8)],
        *([7], "CommunicationFailure", "NcclWatchdog"),
    ),
    "time-outs, and one that shows none: it is what they waited for": (
        [*(died(134, WATCHDOG, index=index, seconds=index) for index in range(4)), died(134, index=9, seconds=6)],
        *([9], "CommunicationFailure", "Exit134"),
    ),
    "time-outs, and one that was killed": (
        [*(died(134, WATCHDOG, index=index, seconds=index) for index in range(4)), died(137, index=9, seconds=6)],
        *([9], "Killed", "Exit137"),
    ),
    "connections reset between exactly two hosts: both": (
        [died(1, RESET, index=4, seconds=0), died(1, RESET, index=6, seconds=1)],
        *([4, 6], "CommunicationFailure", "ConnectionReset"),
    ),
    "the same, and the others timed out of it": (
        [
            *(died(1, RESET, index=index, seconds=0) for index in (4, 6)),
            *(died(134, WATCHDOG, index=index, seconds=600) for index in range(4)),
        ],
        *([4, 6], "CommunicationFailure", "ConnectionReset"),
    ),
    "connections reset at three hosts: the earliest": (
        [died(1, RESET, index=index, seconds=index) for index in (4, 5, 6)],
        *([4], "CommunicationFailure", "ConnectionReset"),
    ),
    "two killed one after the other: each was killed from outside": (
        [died(137, index=4, seconds=0), died(137, index=6, seconds=3)],
        *([4, 6], "Killed", "Exit137"),
    ),
    "all pods of a lost node": (
        [lost(LossKind.NODE_LOST, index=index, seconds=0) for index in (5, 4)] + [deleted(3, 0)],
        *([4, 5, 3], "NodeLost", "NodeLost"),
    ),
    "a loss of which no one knows when comes last": (
        [died(1, ERROR, index=1, seconds=None), died(1, ERROR, index=5, seconds=100)],
        *([5, 1], "UserError", "LookupError"),
    ),
}


@pytest.mark.parametrize(("evidence", "ranks", "class_", "cause"), CASES.values(), ids=CASES)
def test_the_root_is_the_earliest_cause(evidence: list[Evidence], ranks: list[int], class_: str, cause: str) -> None:
    disruption = judged(*evidence)
    assert causes(disruption) == ranks
    assert (disruption.disruption_class, disruption.cause) == (class_, cause)
    assert [finding.cascade for finding in disruption.findings] == [False] * len(ranks) + [True] * (
        len(evidence) - len(ranks)
    )


# --- our own doing --------------------------------------------------------------------------------------------------

OURS: dict[str, tuple[Evidence, Snapshot]] = {
    "of a pod that was asked to go": (died(143, seconds=5, deleting_since=at(3)), WELL),
    "of a pod that was asked to go at the same time": (died(137, seconds=2, deleting_since=at(3)), WELL),
    "of a pod that was asked to go, no one knows when it ended": (died(137, seconds=None, deleting_since=at(3)), WELL),
    "of a pod that was asked to go, as torchrun passes it on": (
        died(1, "SignalException: Process 1 got signal: 15", seconds=5, deleting_since=at(3)),
        WELL,
    ),
    "of a Job that is deleted": (died(137, seconds=5), GROUP.job_deleted(3).snapshot()),
    "of a Job that fails": (died(143, seconds=5), GROUP.job_failing("BackoffLimitExceeded", 3).snapshot()),
}


@pytest.mark.parametrize(("killed", "snapshot"), OURS.values(), ids=OURS)
def test_a_signal_to_a_pod_that_had_to_go_is_no_cause(killed: Evidence, snapshot: Snapshot) -> None:
    later = died(1, ERROR, index=9, seconds=20)
    assert causes(judged(killed, later, snapshot=snapshot)) == [9]
    assert judged(killed, job_failing(20), snapshot=snapshot).disruption_class == "JobFailed"


CAUSES_ALL_THE_SAME: dict[str, tuple[Evidence, Snapshot]] = {
    "it was killed before it was asked to go": (died(137, seconds=0, deleting_since=at(3)), WELL),
    "it ran out of memory on its way": (died(137, reason="OOMKilled", seconds=5, deleting_since=at(3)), WELL),
    "it failed by itself on its way": (died(1, ERROR, seconds=5, deleting_since=at(3)), WELL),
    "its Job goes on": (died(137, seconds=5), GROUP.snapshot()),
    "its Job had failed to start once": (
        died(137, seconds=5),
        GROUP.with_job(conditions=(Condition("Failed", "False", since=at(3)),)).snapshot(),
    ),
}


@pytest.mark.parametrize(("item", "snapshot"), CAUSES_ALL_THE_SAME.values(), ids=CAUSES_ALL_THE_SAME)
def test_any_other_end_is_one(item: Evidence, snapshot: Snapshot) -> None:
    later = died(1, ERROR, index=9, seconds=20)
    assert causes(judged(item, later, snapshot=snapshot)) == [3, 9]


# --- who is blamed --------------------------------------------------------------------------------------------------


def test_a_node_is_not_blamed_by_what_is_only_consequence() -> None:
    """The device of a rank that waited may be bad too. But the rank would then be a cause and listed as such."""
    disruption = judged(died(1, XID, index=2, seconds=0), died(134, WATCHDOG, index=3, seconds=600))
    assert [finding.blames_node for finding in disruption.findings] == [True, False]


def test_a_pod_without_a_node_blames_none() -> None:
    assert not judged(died(1, XID, node="")).root.blames_node


def test_at_most_eight_are_suspected() -> None:
    disruption = judged(*(died(1, ERROR, index=index) for index in range(12)))
    assert [suspect.index for suspect in disruption.suspects] == list(range(8))


# --- whatever comes -------------------------------------------------------------------------------------------------

MESSAGES = ("", WATCHDOG, RESET, ERROR, XID, "\ud800", "usage: train.py")
REASONS = ("", "EvictionByEvictionAPI", "DeletionByTaintManager", "PreemptionByScheduler", "Nobody")


@st.composite
def pieces(draw: st.DrawFn) -> Evidence:
    kind = draw(st.sampled_from(list(LossKind)))
    index = draw(st.integers(0, 5))
    seconds = draw(st.none() | st.sampled_from([0, 0.5, 1, 2, 29, 31, 600, 605]))
    code = draw(st.sampled_from([0, 1, 2, 14, 134, 137, 139, 143, 247]))
    item = died(code, draw(st.sampled_from(MESSAGES)), index=index, seconds=seconds, kind=kind)
    deleting = draw(st.none() | st.sampled_from([at(0), at(5)]))
    assert item.pod is not None
    pod = msgspec.structs.replace(item.pod, deleting_since=deleting, node=draw(st.sampled_from(["gpu-3", ""])))
    return msgspec.structs.replace(
        item,
        pod=draw(st.sampled_from([pod, None])),
        exit=draw(st.sampled_from([item.exit, None])),
        inferred=draw(st.booleans()),
        disrupted_by=draw(st.sampled_from(REASONS)),
    )


@st.composite
def evidence_of_a_group(draw: st.DrawFn) -> tuple[Evidence, ...]:
    """Keys name events, so no two pieces of evidence share one."""
    found = draw(st.lists(pieces(), min_size=1, max_size=8))
    return tuple(msgspec.structs.replace(item, key=f"{number}") for number, item in enumerate(found))


SNAPSHOTS = (
    WELL,
    around(gone=True),
    around(ready=False, reachable=False),
    around(unschedulable=True, conditions={"XIDErrors": "True"}),
    GROUP.job_deleted(2).snapshot(),
    msgspec.structs.replace(WELL, jobs=(), nodes={}),
)


@given(evidence_of_a_group(), st.sampled_from(SNAPSHOTS), st.randoms(use_true_random=False))
def test_any_evidence_has_one_meaning_whatever_its_order(
    evidence: tuple[Evidence, ...], snapshot: Snapshot, random: object
) -> None:
    disruption = classify(evidence, snapshot)
    assert sorted(item.key for item in disruption.evidence) == sorted(item.key for item in evidence)
    shuffled = list(evidence)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert classify(tuple(shuffled), snapshot) == disruption
    assert disruption.cause


@given(evidence_of_a_group(), st.sampled_from(SNAPSHOTS))
def test_the_root_is_a_cause_and_causes_come_before_consequences_by_time(
    evidence: tuple[Evidence, ...], snapshot: Snapshot
) -> None:
    disruption = classify(evidence, snapshot)
    flags = [finding.cascade for finding in disruption.findings]
    assert not flags[0]
    assert flags == sorted(flags)
    dated = [finding.evidence.at for finding in disruption.findings if not finding.cascade and finding.evidence.at]
    seconds = [moment.replace(microsecond=0) for moment in dated]
    assert seconds == sorted(seconds)
    assert not any(finding.blames_node for finding in disruption.findings if finding.cascade)


@given(evidence_of_a_group())
def test_a_sign_of_having_waited_is_no_root_where_another_is(evidence: tuple[Evidence, ...]) -> None:
    disruption = classify((*evidence, deleted(20, 0)), WELL)
    waited = {"NcclWatchdog", "ConnectionReset", "RendezvousTimeout"}
    assert all(finding.cascade for finding in disruption.findings if finding.signature in waited)


def test_a_thousand_losses_are_judged_at_once() -> None:
    """The number of comparisons must not grow with the square of the losses: 4,000 of them would take minutes."""
    evidence = tuple(
        msgspec.structs.replace(died(134, f"{WATCHDOG} of {index}", index=index % 32, seconds=index), key=str(index))
        for index in range(4000)
    )
    assert len(classify(evidence, WELL).findings) == 4000


# --- the same words again -------------------------------------------------------------------------------------------

SAME: dict[str, tuple[str, str]] = {
    "times, ranks and durations": (
        "[rank3]:[E321 02:07:08.408 ProcessGroupNCCL.cpp:607] [Rank 3] timeout: SeqNum=1580 ran for 600060 ms",
        "[rank5]:[E322 11:59:01.001 ProcessGroupNCCL.cpp:607] [Rank 5] timeout: SeqNum=7753 ran for 600099 ms",
    ),
    "pods, hosts and ports": (
        "no route to train-node-0-3-x7k2p.train.ml.svc:29500 (10.2.3.4:29500)",
        "no route to train-node-0-11-abcd1.train.ml.svc:29501 (10.2.99.14:31007)",
    ),
    "addresses, ids and process ids": (
        "segfault at 0x7f3a99 in pid 4141 of 0d2f5c9e-5b1c-4f6e-9d6b-4f2f1c0a7b11",
        "segfault at 0x7ffe01 in pid 17 of 9d2f5c9e-5b1c-4f6e-9d6b-4f2f1c0a7b12",
    ),
    "the device of an XID": (
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=4141, name=python",
        "NVRM: Xid (PCI:0000:d1:00): 79, pid=88, name=python",
    ),
    "dates": ("2026-11-21T12:00:03.5Z loss is nan", "2026-12-01 04:00:03 loss is nan"),
    "all but the last line that says something": ("one\nKeyError: 'labels'\n\n", "another\n  KeyError: 'labels'"),
}


@pytest.mark.parametrize(("one", "other"), SAME.values(), ids=SAME)
def test_what_changes_from_run_to_run_makes_no_difference(one: str, other: str) -> None:
    assert normalised_message(one) == normalised_message(other)


DIFFERENT = [
    ("KeyError: 'labels'", "KeyError: 'inputs'"),
    ("NVRM: Xid (PCI:0000:3b:00): 79, x", "NVRM: Xid (PCI:0000:3b:00): 48, x"),
    ("[Errno 104] it failed", "[Errno 28] it failed"),
    ("child ended with exit code 3", "child ended with exit code 4"),
    ("expected float32", "expected float16"),
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_what_tells_failures_apart_stays(one: str, other: str) -> None:
    assert normalised_message(one) != normalised_message(other)


@given(st.text())
def test_a_normalised_message_is_one_short_line(text: str) -> None:
    said = normalised_message(text)
    assert len(said) <= NORMALISED_MAX
    assert len(said.splitlines()) <= 1
    assert bool(said) == any(map(str.isalpha, text[-4096:]))


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("loss is nan at step 1200", 1200),
        ("step=7: loss 2.1", 7),
        ("iteration 1200/ 5000 | loss nan", 1200),
        ("{'global_step': 3}", None),
        ("global_step: 42", 42),
        ("step 100\nstep 200 ok\nKeyError", 200),
        ("stepping stone 5", None),
        ("", None),
    ],
)
def test_the_step_is_the_last_that_the_message_names(text: str, step: int | None) -> None:
    assert step_in(text) == step
