"""Dates and numbers of an object, up to what an API server accepts: they are clamped, or refused with their path."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from recovery.core.model.ledger_bounds import EARLIEST, LATEST
from recovery.kube.projections.events import decode_event
from recovery.kube.projections.metadata import INT32_MAX, Metadata
from recovery.kube.projections.nodes import decode_node, decode_renewal
from recovery.kube.projections.pods import decode_pod
from recovery.kube.projections.recovery import decode_policy
from recovery.kube.projections.workloads import decode_job, decode_job_set, decode_train_job
from recovery.sim.api.metadata import grace_of
from tests.unit.kube.testing import fixture

ASKED_AT = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
YEAR_1, YEAR_9999 = "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"
INDEX = "batch.kubernetes.io/job-completion-index"
ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"
NOT_NUMBERS = ["abc", "-1", "+1", "1_0", " 1", "1.0", "٣", "²", "2147483648", "9" * 5000]


def changed(name: str, change: dict[str, Any]) -> bytes:
    body = json.loads(fixture(name))
    for path, value in change.items():
        *parents, last = path.split("/")
        inner = body
        for parent in parents:
            inner = inner[int(parent)] if isinstance(inner, list) else inner.setdefault(parent, {})
        inner[last] = value
    return json.dumps(body).encode()


def deletion(timestamp: str, grace: int) -> Metadata:
    return Metadata(
        name="x",
        uid="u",
        resource_version="1",
        creation_timestamp=ASKED_AT,
        deletion_timestamp=datetime.fromisoformat(timestamp),
        deletion_grace_period_seconds=grace,
    )


class TestDeletion:
    @pytest.mark.parametrize("grace", [0, 30, 10**9, 10**10, 10**11, 2**63 - 1])
    def test_it_is_dated_when_it_was_asked_for_whatever_the_grace(self, grace: int) -> None:
        """The server's int64 of nanoseconds wraps around, as in `kubectl delete pod X --grace-period=100000000000`."""
        written = (ASKED_AT + grace_of(grace)).replace(microsecond=0)
        found = deletion(written.isoformat(), grace)
        assert found.deleting_since == ASKED_AT
        assert found.deletion_grace_seconds == min(grace, INT32_MAX)

    def test_the_server_dates_the_end_of_a_very_long_grace_in_another_century(self) -> None:
        assert (ASKED_AT + grace_of(10**10)).year == 1759
        assert (ASKED_AT + grace_of(10**11)).year == 2272

    @pytest.mark.parametrize(
        ("timestamp", "grace"),
        [
            (YEAR_1, 30),
            (YEAR_1, 0),
            (YEAR_9999, 0),
            (YEAR_9999, -30),
            ("0001-01-01T00:00:00+23:59", 10**30),
            ("9999-12-31T23:59:59-23:59", -(10**30)),
            ("9999-12-31T23:59:59.999999Z", 0),
        ],
    )
    def test_where_nothing_says_when_it_is_still_to_come(self, timestamp: str, grace: int) -> None:
        assert deletion(timestamp, grace).deleting_since == LATEST

    def test_a_pod_with_a_grace_beyond_all_measure_is_read(self) -> None:
        raw = changed(
            "pod_deleting",
            {
                "metadata/deletionTimestamp": "2272-12-28T20:53:51Z",
                "metadata/deletionGracePeriodSeconds": 10**11,
                "spec/terminationGracePeriodSeconds": 10**11,
            },
        )
        pod = decode_pod(raw).value.facts
        assert pod.deleting_since == datetime(2026, 11, 21, 9, tzinfo=UTC)
        assert (pod.grace_seconds, pod.deletion_grace_seconds) == (INT32_MAX, INT32_MAX)
        assert pod.deleting_since + timedelta(seconds=pod.grace_seconds) < LATEST


class TestDates:
    @pytest.mark.parametrize(
        ("text", "date"),
        [(YEAR_1, EARLIEST), (YEAR_9999, LATEST), ("0001-01-01T00:00:00+23:59", EARLIEST)],
        ids=["the zero time of Go", "the last one", "before the zero time"],
    )
    def test_they_are_clamped(self, text: str, date: datetime) -> None:
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": text}
        ended = {"terminated": {"exitCode": 1, "startedAt": text, "finishedAt": text}}
        status = {"name": "node", "state": {"running": {"startedAt": text}}, "lastState": ended}
        pod = decode_pod(
            changed(
                "pod_running",
                {
                    "metadata/creationTimestamp": text,
                    "status/startTime": text,
                    "status/conditions": [ready, ready | {"type": "X"}],
                    "status/containerStatuses": [status],
                },
            )
        ).value.facts
        assert {pod.created_at, pod.accepted_at, pod.ready_since, pod.conditions[0].since} == {date}
        (container,) = pod.containers
        assert container.last_exit is not None
        assert {container.running_since, container.last_exit.started_at, container.last_exit.finished_at} == {date}

        taint = {"key": "k", "effect": "NoExecute", "timeAdded": text}
        node = decode_node(changed("node", {"spec/taints": [taint], "status/conditions": [ready]})).value
        assert {node.ready_since, node.taints[0].since} == {date}
        assert decode_renewal(json.dumps({"spec": {"renewTime": text}}).encode()) == date
        assert decode_event(json.dumps({"lastTimestamp": text}).encode()).at == date
        for decode, name in ((decode_train_job, "trainjob"), (decode_job_set, "jobset"), (decode_job, "job")):
            read = decode(changed(name, {"metadata/creationTimestamp": text})).value
            assert (read if name == "trainjob" else read.facts).created_at == date  # type: ignore[union-attr]
        policy = decode_policy(changed("recoverypolicy", {"metadata/managedFields/0/time": text})).value
        assert policy.created_at > EARLIEST
        assert EARLIEST <= policy.mode_since <= LATEST

    def test_one_without_a_zone_is_refused_with_its_path(self) -> None:
        """It cannot be compared with other dates, and the error would appear far from its cause."""
        with pytest.raises(ValueError, match=r"at `\$\.status\.conditions\[0\]\.lastTransitionTime"):
            decode_job_set(
                changed(
                    "jobset",
                    {
                        "status/conditions": [
                            {"type": "Failed", "status": "True", "lastTransitionTime": "2026-11-21T09:00:00"}
                        ]
                    },
                )
            )
        with pytest.raises(ValueError, match=r"at `\$\.metadata\.creationTimestamp"):
            decode_node(changed("node", {"metadata/creationTimestamp": "2026-11-21T09:00:00"}))


class TestNumbers:
    @pytest.mark.parametrize("text", NOT_NUMBERS)
    def test_a_label_that_is_no_number_is_refused_with_its_name(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"at `\$\.metadata\.labels\['batch.kubernetes.io/job-completion-index'\]"):
            decode_pod(changed("pod_running", {"metadata/labels": {INDEX: text}}))
        with pytest.raises(ValueError, match=r"at `\$\.metadata\.labels\['jobset.sigs.k8s.io/restart-attempt'\]"):
            decode_job(changed("job", {"metadata/labels": {ATTEMPT: text}}))

    def test_the_largest_is_read(self) -> None:
        assert (
            decode_pod(changed("pod_running", {"metadata/labels": {INDEX: str(INT32_MAX)}})).value.facts.index
            == INT32_MAX
        )
        assert decode_job(changed("job", {"metadata/labels": {ATTEMPT: "007"}})).value.facts.restart_attempt == 7

    @pytest.mark.parametrize("text", ["²", "٣", "9" * 20, "9" * 5000, "-1", "1k", ""])
    def test_a_quantity_that_is_no_count_counts_no_accelerator(self, text: str) -> None:
        assert decode_node(changed("node", {"status/allocatable": {"nvidia.com/gpu": text}})).value.gpus == 0
        assert decode_node(changed("node", {"status/allocatable": {"nvidia.com/gpu": "8"}})).value.gpus == 8
