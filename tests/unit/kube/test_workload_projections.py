"""What the controller keeps of TrainJobs, JobSets and Jobs."""

import json

import pytest

from recovery.core.model.facts import Condition, GroupKey, ReplicatedJobFacts, WorkloadFacts
from recovery.core.model.native_policy_facts import (
    ExitCodesRequirement,
    FailurePolicyFacts,
    FailurePolicyRule,
    PodConditionPattern,
    PodFailureRule,
)
from recovery.core.model.progress import Progress
from recovery.kube.projections.workloads import decode_job, decode_job_set, decode_train_job
from tests.unit.kube.projected import JOB_UID, at, changed
from tests.unit.kube.testing import fixture


class TestWorkloads:
    def test_a_train_job_brings_all_labels_and_only_our_annotations(self) -> None:
        job = decode_train_job(fixture("trainjob")).value
        assert (job.kind, job.name, job.generation, job.suspended) == ("TrainJob", "llm", 1, False)
        assert job.labels == {"team": "a"}
        assert job.annotations == {"recovery.trainjob.dev/paused": "false"}

    def test_a_train_job_that_is_suspended_and_finished(self) -> None:
        condition = {"type": "Complete", "status": "True", "lastTransitionTime": "2026-11-21T10:00:00Z"}
        job = decode_train_job(changed("trainjob", spec__suspend=True, status__conditions=[condition])).value
        assert job.suspended
        assert job.condition("Complete") == Condition("Complete", "True", since=at("10:00:00"))

    def test_who_has_patched_the_runtime_of_a_train_job(self) -> None:
        pods = {"spec": {"nodeSelector": {"cloud.example.com/pool": "a"}}}
        node = {"name": "node", "template": {"spec": {"template": pods}}}
        spec = {"template": {"spec": {"replicatedJobs": [node]}}}
        patches = [{"manager": "kueue.x-k8s.io/manager", "trainingRuntimeSpec": spec}, {"manager": "example.com/team"}]
        assert decode_train_job(changed("trainjob", spec__runtimePatches=patches)).value.patched_by == (
            "kueue.x-k8s.io/manager",
        )

    def test_an_entry_that_says_nothing_is_no_patch(self) -> None:
        """The webhook of Kueue 0.19 adds this entry to every TrainJob, even to one that Kueue does not manage."""
        patches = [{"manager": "kueue.x-k8s.io/manager", "trainingRuntimeSpec": {"template": {"spec": {}}}}]
        assert decode_train_job(changed("trainjob", spec__runtimePatches=patches)).value.patched_by == ()

    @pytest.mark.parametrize(
        ("percentage", "ratio"), [({"progressPercentage": 45}, 0.45), ({"progressPercentage": 0}, 0.0), ({}, None)]
    )
    def test_how_far_a_training_has_come(self, percentage: dict[str, object], ratio: float | None) -> None:
        told = {"lastUpdatedTime": "2026-11-21T10:00:00Z", "metrics": [{"name": "loss", "value": "0.1"}], **percentage}
        job = decode_train_job(changed("trainjob", status__trainerStatus=told)).value
        assert job.progress == Progress(at("10:00:00"), ratio)
        assert decode_train_job(fixture("trainjob")).value.progress is None

    @pytest.mark.parametrize(
        "wrong",
        [
            None,
            "far",
            {},
            {"progressPercentage": 45},
            {"progressPercentage": 45, "lastUpdatedTime": None},
            {"progressPercentage": 45, "lastUpdatedTime": "0001-01-01T00:00:00Z"},
            {"progressPercentage": 45, "lastUpdatedTime": "today"},
            {"progressPercentage": 101, "lastUpdatedTime": "2026-11-21T10:00:00Z"},
            {"progressPercentage": -1, "lastUpdatedTime": "2026-11-21T10:00:00Z"},
            {"progressPercentage": "45", "lastUpdatedTime": "2026-11-21T10:00:00Z"},
        ],
        ids=str,
    )
    def test_a_progress_that_makes_no_sense_is_none_and_the_job_is_read(self, wrong: object) -> None:
        job = decode_train_job(changed("trainjob", status__trainerStatus=wrong)).value
        assert (job.name, job.progress) == ("llm", None)

    @pytest.mark.parametrize(("written", "deadline"), [(3600, 3600), (0, None), (None, None)], ids=str)
    def test_the_deadline_of_a_train_job_or_a_job_set(self, written: int | None, deadline: int | None) -> None:
        """Trainer omits a deadline of 0. JobSet 0.12 has no such field; jobset#1320 adds it under the same name."""
        train_job = decode_train_job(changed("trainjob", spec__activeDeadlineSeconds=written)).value
        assert train_job.active_deadline_seconds == deadline
        raw = changed("jobset", spec__activeDeadlineSeconds=written, metadata__ownerReferences=None)
        record = decode_job_set(raw).value
        assert record.facts.active_deadline_seconds == deadline
        assert record.workload is not None
        assert record.workload.active_deadline_seconds == deadline

    @pytest.mark.parametrize("seconds", [0, 600, None])
    def test_how_long_a_job_set_stays_after_its_end(self, seconds: int | None) -> None:
        assert (
            decode_job_set(changed("jobset", spec__ttlSecondsAfterFinished=seconds)).value.facts.ttl_seconds == seconds
        )

    def test_the_deadline_and_the_limit_per_index_of_a_job(self) -> None:
        job = decode_job(changed("job", spec__activeDeadlineSeconds=600, spec__backoffLimitPerIndex=1)).value.facts
        assert (job.active_deadline_seconds, job.backoff_limit_per_index) == (600, 1)
        job = decode_job(fixture("job")).value.facts
        assert (job.active_deadline_seconds, job.backoff_limit_per_index) == (None, None)

    def test_a_job_set(self) -> None:
        record = decode_job_set(fixture("jobset")).value
        assert record.owner_uid == "1a93898b-ffca-4ca8-9e18-ad099985668f"
        assert record.facts.replicated_jobs == (
            ReplicatedJobFacts("node", 1, "trainer", size_known=True, parallelism=4, completions=4, accelerators=8),
        )
        assert (record.facts.restarts, record.facts.terminal_state, record.facts.failure_policy) == (0, "", None)
        assert record.workload is None, "it is its TrainJob's"

    def test_the_targets_of_a_success_policy(self) -> None:
        policy = {"operator": "All", "targetReplicatedJobs": ["launcher"]}
        assert decode_job_set(changed("jobset", spec__successPolicy=policy)).value.facts.success_targets == (
            "launcher",
        )
        assert (
            decode_job_set(changed("jobset", spec__successPolicy={"operator": "All"})).value.facts.success_targets == ()
        )

    def test_a_job_set_that_nothing_controls_is_a_workload_of_its_own(self) -> None:
        labels = {"kueue.x-k8s.io/queue-name": "gpus"}
        annotations = {"recovery.trainjob.dev/paused": "true", "team.example/notes": "long"}
        raw = changed(
            "jobset",
            metadata__ownerReferences=[{"uid": "u", "name": "a group of experiments", "controller": False}],
            metadata__labels=labels,
            metadata__annotations=annotations,
            metadata__deletionTimestamp="2026-11-21T10:00:00Z",
            spec__suspend=True,
        )
        record = decode_job_set(raw).value
        assert record.owner_uid == ""
        assert record.workload == WorkloadFacts(
            kind="JobSet",
            name="llm",
            uid=record.facts.uid,
            resource_version="587",
            generation=1,
            created_at=at("09:25:46"),
            suspended=True,
            labels=labels,
            annotations={"recovery.trainjob.dev/paused": "true"},
            deleting_since=at("10:00:00"),
        )

    def test_one_that_has_finished_is_complete_as_a_train_job_is(self) -> None:
        finished = [{"type": "Completed", "status": "True"}, {"type": "Suspended", "status": "False"}]
        raw = changed("jobset", metadata__ownerReferences=None, status__conditions=finished)
        record = decode_job_set(raw).value
        assert record.workload is not None
        assert record.workload.conditions == (Condition("Complete", "True"), Condition("Suspended", "False"))
        assert record.facts.condition("Completed") is not None, "its own facts keep its own words"

    def test_what_a_replicated_job_waits_for(self) -> None:
        depends_on = [{"name": "load", "status": "Complete"}, {"name": "sshd", "status": "Ready"}]
        replicated = [{"name": "load", "replicas": 2}, {"name": "sshd"}, {"name": "train", "dependsOn": depends_on}]
        facts = decode_job_set(changed("jobset", spec__replicatedJobs=replicated)).value.facts
        assert facts.replicated_jobs == (
            ReplicatedJobFacts("load", 2, size_known=True),
            ReplicatedJobFacts("sshd", size_known=True),
            ReplicatedJobFacts("train", waits_for_complete=("load",), size_known=True),
        )

    def test_a_job_set_with_a_failure_policy_in_the_middle_of_its_life(self) -> None:
        rule = {"name": "r", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}
        policy = {"maxRestarts": 3, "restartStrategy": "Recreate", "rules": [rule, {"action": "RestartJobSet"}]}
        status = {"restarts": 2, "restartsCountTowardsMax": 1, "terminalState": "Failed"}
        facts = decode_job_set(changed("jobset", spec__failurePolicy=policy, status=status)).value.facts
        assert facts.failure_policy == FailurePolicyFacts(
            3,
            (FailurePolicyRule("r", "FailJobSet", ("PodFailurePolicy",)), FailurePolicyRule("", "RestartJobSet")),
        )
        assert (facts.restarts, facts.restarts_counted, facts.terminal_state) == (2, 1, "Failed")

    def test_a_job(self) -> None:
        record = decode_job(fixture("job")).value
        job = record.facts
        assert record.group == GroupKey("default", "llm")
        assert (job.uid, job.replicated_job, job.restart_attempt) == (JOB_UID, "node", 0)
        assert job.jobset_uid == "0960e724-676e-452b-8e2e-6b0ceae771f6"
        assert (job.parallelism, job.completions, job.backoff_limit, job.pod_restart_policy) == (4, 4, 6, "OnFailure")
        assert (job.suspended, job.pod_failure_rules, job.touched) == (False, (), "")
        assert record.ready == 4

    def test_a_job_with_policies_of_its_own(self) -> None:
        rules = [
            {"action": "FailJob", "onExitCodes": {"containerName": "node", "operator": "In", "values": [42]}},
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        ]
        job = decode_job(
            changed(
                "job",
                spec__podFailurePolicy={"rules": rules},
                spec__successPolicy={"rules": []},
                metadata__annotations={"recovery.trainjob.dev/touched": "i-1"},
                metadata__deletionTimestamp="2026-11-21T10:00:00Z",
                metadata__deletionGracePeriodSeconds=0,
            )
        ).value.facts
        assert job.pod_failure_rules == (
            PodFailureRule("FailJob", on_exit_codes=ExitCodesRequirement("In", (42,), "node")),
            PodFailureRule("Ignore", on_pod_conditions=(PodConditionPattern("DisruptionTarget", "True"),)),
        )
        assert (job.touched, job.deleting_since) == ("i-1", at("10:00:00"))

    @pytest.mark.parametrize(
        ("nodes", "born"), [("12", 12), ("0", 0), ("", None), ("-1", None), ("12.5", None), ("1" * 11, None)]
    )
    def test_a_job_says_with_which_settings_it_was_born(self, nodes: str, born: int | None) -> None:
        own = {"recovery.trainjob.dev/birth-settings": "3", "recovery.trainjob.dev/nodes": nodes}
        job = decode_job(changed("job", metadata__annotations=own)).value.facts
        assert (job.birth_revision, job.born_nodes) == ("3", born)
        plain = decode_job(fixture("job")).value.facts
        assert (plain.birth_revision, plain.born_nodes, plain.gang, plain.pinned) == ("", None, "", False)

    @pytest.mark.parametrize(
        ("part", "name", "value"),
        [
            ("metadata__labels", "scheduling.x-k8s.io/pod-group", "llm"),
            ("metadata__labels", "pod-group.scheduling.sigs.k8s.io", "llm"),
            ("metadata__labels", "pod-group.scheduling.sigs.k8s.io/name", "llm"),
            ("metadata__annotations", "scheduling.k8s.io/group-name", "llm"),
            ("metadata__annotations", "scheduling.volcano.sh/group-name", "llm"),
            ("metadata__annotations", "gang.scheduling.koordinator.sh/name", "llm"),
            ("spec", "schedulingGroup", {"podGroupName": "llm"}),
            ("spec", "workloadRef", {"name": "llm", "podGroup": "ranks"}),
        ],
    )
    def test_a_job_whose_pods_are_a_gang_says_by_what(self, part: str, name: str, value: object) -> None:
        template = json.loads(fixture("job"))["spec"]["template"]
        path = part.split("__")
        inner = template.setdefault(path[0], {})
        if len(path) > 1:
            inner = inner.setdefault(path[1], {})
        inner[name] = value
        job = decode_job(changed("job", spec__template=template)).value.facts
        assert job.gang == (f"spec.{name}" if part == "spec" else name)

    @pytest.mark.parametrize(("gate", "pinned"), [("kueue.x-k8s.io/topology", True), ("example.com/later", False)])
    def test_a_job_says_whether_kueue_chooses_the_node_of_each_pod(self, gate: str, pinned: bool) -> None:
        template = json.loads(fixture("job"))["spec"]["template"]
        template["spec"]["schedulingGates"] = [{"name": gate}]
        assert decode_job(changed("job", spec__template=template)).value.facts.pinned is pinned

    @pytest.mark.parametrize(
        ("volumes", "image"),
        [
            (None, ""),
            ([{"name": "data", "emptyDir": {}}], ""),
            ([{"name": "models", "image": {"reference": "models:1"}}], ""),
            ([{"name": "recovery-agent", "emptyDir": {}}], ""),
            ([{"name": "data", "emptyDir": {}}, {"name": "recovery-agent", "image": {"reference": "a@b"}}], "a@b"),
        ],
    )
    def test_a_job_with_the_agent_says_from_which_image(self, volumes: list[object] | None, image: str) -> None:
        job = decode_job(changed("job", spec__template__spec__volumes=volumes)).value.facts
        assert job.agent_image == image
