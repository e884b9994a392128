"""Invariants of whether a restart was justified, each with cases that break it and nearly break it."""

from typing import Any

import msgspec
import pytest

from recovery.core.incident.lifecycle import into_history
from recovery.core.model.facts import Snapshot
from recovery.core.model.group_size import AvoidedNode
from recovery.core.model.ledger import AttemptAction, Outcome, Phase
from recovery.core.model.reason import Reason
from recovery.ports import JOB_SETS, JOBS, PODS
from recovery.sim.trials.checkers.restarts import JustifiedRestart, NativeFirst, ResizeKept
from recovery.sim.trials.faults import FaultKey, FaultKind, TrialFault
from tests.simulation.trials.checker_case import (
    CONTROLLER,
    KEY,
    Case,
    at,
    by_hand,
    closed,
    in_phase,
    opened,
    replaces,
    restarted,
)


class TestJustifiedRestart:
    def test_a_restart_of_an_incarnation_that_lost_no_one_is_found(self) -> None:
        case = Case(JustifiedRestart)
        case.ledger(restarted(opened(1000), 1000))
        assert "no member of Job job-1 was lost" in case.found[0]

    def test_a_trigger_without_any_ledger_is_found_as_well(self) -> None:
        case = Case(JustifiedRestart)
        case.delete(JOBS, "llm-node-0", by=CONTROLLER)
        assert "which has lost no member" in case.found[0]

    @pytest.mark.parametrize("loss", ["deleted", "failed", "restarted", "evicted", "gone", "job failing"])
    def test_any_real_loss_justifies_one(self, loss: str) -> None:
        case = Case(JustifiedRestart)
        pod, condition = "llm-node-0-1", {"type": "DisruptionTarget", "status": "True"}
        match loss:
            case "deleted":
                case.lose_a_pod()
            case "failed":
                case.fails(1, 137)
            case "restarted":
                again = {"name": "node", "restartCount": 1, "state": {"running": {}}}
                case.put(PODS, pod, {"status": {"containerStatuses": [again]}}, by="kubelet")
            case "evicted":
                case.put(PODS, pod, {"status": {"conditions": [condition]}}, by="user")
            case "gone":
                case.drop(PODS, pod, by="pod-garbage-collector")
            case "job failing":
                failing = {"type": "FailureTarget", "status": "True", "reason": "BackoffLimitExceeded"}
                case.put(JOBS, "llm-node-0", {"status": {"conditions": [failing]}}, by="job-controller")
        case.ledger(restarted(opened(1000), 1000))
        assert case.found == []

    @pytest.mark.parametrize("restarts", [0, 1])
    def test_the_end_of_a_container_that_does_not_train_justifies_none(self, restarts: int) -> None:
        case = Case(JustifiedRestart)
        state = {"running": {}} if restarts else {"terminated": {"exitCode": 137}}
        case.runs(1, {"name": "shipper", "restartCount": restarts, "state": state})
        case.ledger(restarted(opened(1000), 1000))
        assert "no member of Job job-1 was lost" in case.found[0]

    def test_nor_does_a_group_that_such_a_container_keeps_from_being_ready(self) -> None:
        case = Case(JustifiedRestart)
        case.lose_a_pod()
        first = in_phase(restarted(opened(1000), 1000), Phase.STARTING)
        case.ledger(first)
        for name in ("llm-node-0-0", "llm-node-0-1"):
            case.drop(PODS, name, by="kubelet")
        case.drop(JOBS, "llm-node-0", by="garbage-collector")
        case.job("job-2")
        for index in (0, 1):
            case.pod(index, "job-2")
            case.runs(index, {"name": "helper", "restartCount": 0, "state": {"terminated": {"exitCode": 0}}})
        case.now += 900
        case.ledger(restarted(first, 1900, job_uid="job-2"))
        assert "no member of Job job-2 was lost, and it had not been on its way for long" in case.found[0]

    def test_nor_does_a_pod_that_its_user_has_scaled_away(self) -> None:
        case = Case(JustifiedRestart)
        case.job("job-1", parallelism=1, completions=1)
        case.delete(PODS, "llm-node-0-1", by="job-controller")
        case.drop(PODS, "llm-node-0-1", by="kubelet")
        case.ledger(restarted(opened(1000), 1000))
        assert len(case.found) == 1

    @pytest.mark.parametrize(("ago", "violations"), [(600, 1), (60, 0)])
    def test_nor_does_a_loss_from_long_before_the_job_was_resumed(self, ago: float, violations: int) -> None:
        case = Case(JustifiedRestart)
        case.fails(1, 137)
        case.now += ago - 10
        case.job("job-1", suspend=True)
        case.now += 10
        case.job("job-1", suspend=False)
        case.ledger(restarted(opened(case.now), case.now))
        assert len(case.found) == violations

    @pytest.mark.parametrize(("seconds", "violations"), [(0.2, 0), (60, 1)])
    def test_no_one_can_tell_what_a_suspension_of_a_moment_deletes_from_a_loss(
        self, seconds: float, violations: int
    ) -> None:
        case = Case(JustifiedRestart)
        case.job("job-1", suspend=True)
        case.delete(PODS, "llm-node-0-1", by="job-controller")
        case.now += seconds
        case.job("job-1", suspend=False)
        case.ledger(restarted(opened(case.now), case.now))
        assert len(case.found) == violations

    @pytest.mark.parametrize(("by", "violations"), [("user", 0), (CONTROLLER, 1)])
    def test_another_client_that_deletes_a_job_beside_it_justifies_one(self, by: str, violations: int) -> None:
        case = Case(JustifiedRestart)
        node = case.objects[JOBS.plural, "llm-node-0"]
        body = {"metadata": {"labels": node["metadata"]["labels"]}, "spec": node["spec"]}
        case.put(JOBS, "llm-launcher-0", body, by="jobset-controller", uid="launcher-1", owner="jobset")
        case.now += 30
        case.drop(JOBS, "llm-launcher-0", by=by)
        case.ledger(restarted(opened(1030), 1030))
        assert len([each for each in case.found if "no member of Job job-1 was lost" in each]) == violations

    def test_what_a_controller_took_away_itself_justifies_nothing(self) -> None:
        case = Case(JustifiedRestart)
        case.delete(PODS, "llm-node-0-1", by=CONTROLLER)
        case.drop(PODS, "llm-node-0-1", by="kubelet")
        case.ledger(restarted(opened(1000), 1000))
        assert len(case.found) == 1

    def test_nor_does_a_loss_of_the_incarnation_before(self) -> None:
        case = Case(JustifiedRestart)
        case.lose_a_pod()
        first = restarted(opened(1000), 1000)
        case.ledger(first)
        case.drop(JOBS, "llm-node-0", by="garbage-collector")
        case.job("job-2")
        case.now += 30
        case.ledger(restarted(in_phase(first, Phase.RENDEZVOUS), 1030, job_uid="job-2"))
        assert "no member of Job job-2 was lost, and it had not been on its way for long" in case.found[0]

    @pytest.mark.parametrize(("avoids", "violations"), [(True, 0), (False, 1)])
    def test_a_group_that_finds_no_node_may_be_restarted_to_avoid_none_any_more(
        self, avoids: bool, violations: int
    ) -> None:
        case = Case(JustifiedRestart)
        case.lose_a_pod()
        first = in_phase(restarted(opened(1000), 1000), Phase.SCHEDULING)
        avoided = (AvoidedNode("gpu-2", "gpu-2", at(1000), at(9000)),) if avoids else ()
        first = msgspec.structs.replace(first, avoided=avoided)
        case.ledger(first)
        case.drop(JOBS, "llm-node-0", by="garbage-collector")
        case.job("job-2")
        case.now += 20
        ended = restarted(msgspec.structs.replace(first, avoided=()), 1020, job_uid="job-2")
        incident = ended.incident
        assert incident is not None
        latest = msgspec.structs.replace(incident.attempts[-1], reason=Reason.AVOIDANCE_ENDED)
        case.ledger(ended.with_incident(attempts=(*incident.attempts[:-1], latest)))
        assert len(case.found) == violations

    def test_an_attempt_that_took_too_long_may_be_repeated(self) -> None:
        case = Case(JustifiedRestart)
        case.lose_a_pod()
        first = in_phase(restarted(opened(1000), 1000), Phase.SCHEDULING)
        case.ledger(first)
        case.drop(JOBS, "llm-node-0", by="garbage-collector")
        case.job("job-2")
        case.now += 120
        case.ledger(restarted(first, 1120, job_uid="job-2"))
        assert case.found == []

    @pytest.mark.parametrize(("timeout_seconds", "violations"), [(60.0, 0), (120.0, 1), (0.0, 1)])
    def test_how_long_is_too_long_is_for_its_policy_to_say(self, timeout_seconds: float, violations: int) -> None:
        case = Case(JustifiedRestart)
        case.lose_a_pod()
        first = in_phase(restarted(opened(1000, rendezvous_timeout_seconds=timeout_seconds), 1000), Phase.RENDEZVOUS)
        case.ledger(first)
        case.drop(JOBS, "llm-node-0", by="garbage-collector")
        case.job("job-2")
        case.now += 62
        case.ledger(restarted(first, 1062, job_uid="job-2"))
        assert len(case.found) == violations

    def test_to_a_clock_that_has_jumped_it_seems_to_be(self) -> None:
        case = Case(JustifiedRestart)
        case.lose_a_pod()
        first = in_phase(restarted(opened(1000), 1000), Phase.SCHEDULING)
        case.ledger(first)
        case.drop(JOBS, "llm-node-0", by="garbage-collector")
        case.job("job-2")
        case.hits(FaultKind.CLOCK_JUMP, actor=CONTROLLER)
        case.now += 50
        case.ledger(restarted(first, 1120, job_uid="job-2"))
        assert case.found == []

    def test_a_person_may_restart_what_is_well(self) -> None:
        case = Case(JustifiedRestart)
        case.annotate(restart=at(1000).isoformat())
        case.ledger(by_hand(restarted(opened(1000), 1000), 1000))
        assert case.found == []

    def test_but_has_to_have_asked(self) -> None:
        case = Case(JustifiedRestart)
        case.ledger(by_hand(restarted(opened(1000), 1000), 1000))
        assert "no user has asked for it" in case.found[0]

    @pytest.mark.parametrize("how", ["jobset", "user", "JobSet deleted", "nobody"])
    def test_only_a_restart_that_was_made_is_adopted(self, how: str) -> None:
        case = Case(JustifiedRestart)
        ledger = opened(1000)
        assert ledger.incident is not None
        adopted = restarted(ledger, 1000, action=AttemptAction.ADOPTED)
        if how == "jobset":
            case.jobset(status={"restarts": 1})
            assert adopted.incident is not None
            target = msgspec.structs.replace(adopted.incident.target, from_restarts=1)
            adopted = msgspec.structs.replace(
                adopted, incident=msgspec.structs.replace(adopted.incident, target=target)
            )
        elif how == "user":
            case.delete(JOBS, "llm-node-0")
        elif how == "JobSet deleted":
            case.ledger(ledger)
            case.delete(JOB_SETS, "llm")
        case.ledger(adopted)
        assert len(case.found) == (1 if how == "nobody" else 0)

    @pytest.mark.parametrize("failed", [True, False])
    def test_only_a_failed_jobset_is_recreated(self, failed: bool) -> None:
        case = Case(JustifiedRestart)
        if failed:
            case.jobset(status={"terminalState": "Failed"})
        ledger = restarted(opened(1000), 1000, action=AttemptAction.RECREATE_JOB_SET)
        assert ledger.incident is not None
        attempt = msgspec.structs.replace(ledger.incident.attempts[0], job_set_uid="jobset")
        incident = msgspec.structs.replace(ledger.incident, attempts=(attempt,))
        case.ledger(msgspec.structs.replace(ledger, incident=incident))
        assert len(case.found) == (0 if failed else 1)


class TestResizeKept:
    @staticmethod
    def case(*, resized: bool) -> Case:
        case = Case(ResizeKept)
        size = {"parallelism": 2, "completions": 2}
        case.jobset(spec={"replicatedJobs": [{"name": "node", "template": {"spec": size}}]})
        case.lose_a_pod()
        if resized:
            case.job("job-1", parallelism=1, completions=1)
        return case

    def test_a_job_of_another_size_is_not_deleted(self) -> None:
        case = self.case(resized=True)
        case.delete(JOBS, "llm-node-0", by=CONTROLLER)
        assert "deletes Job llm-node-0 of 1 pods, and its template has 2" in case.found[0]

    def test_one_of_the_templates_size_may_be(self) -> None:
        case = self.case(resized=False)
        case.delete(JOBS, "llm-node-0", by=CONTROLLER)
        assert case.found == []

    def test_others_may_delete_it(self) -> None:
        case = self.case(resized=True)
        case.delete(JOBS, "llm-node-0", by="user")
        assert case.found == []

    def test_who_has_asked_for_a_restart_gets_it(self) -> None:
        case = self.case(resized=True)
        case.annotate(retry=at(1000).isoformat())
        case.delete(JOBS, "llm-node-0", by=CONTROLLER)
        assert case.found == []


FAIL_JOB = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
COUNT = {"action": "Count", "onExitCodes": {"operator": "In", "values": [42]}}


class TestNativeFirst:
    def restart_after_reading(self, case: Case, **request: Any) -> list[str]:
        case.reads_live()
        case.ledger(restarted(opened(1000), 1000), **request)
        return case.found

    @pytest.mark.parametrize(
        ("code", "rules", "violations"),
        [(42, [FAIL_JOB], 1), (41, [FAIL_JOB], 0), (42, [COUNT, FAIL_JOB], 0), (42, [], 0)],
    )
    def test_a_rule_that_fails_the_job_goes_first(self, code: int, rules: list[Any], violations: int) -> None:
        case = Case(NativeFirst)
        case.job("job-1", podFailurePolicy={"rules": rules})
        case.fails(1, code)
        assert len(self.restart_after_reading(case)) == violations

    @pytest.mark.parametrize(("code", "violations"), [(42, 1), (41, 0)])
    def test_so_it_does_where_a_sidecar_keeps_the_pod_running(self, code: int, violations: int) -> None:
        case = Case(NativeFirst)
        case.job("job-1", podFailurePolicy={"rules": [FAIL_JOB]})
        shipper = {"name": "shipper", "restartCount": 0, "state": {"running": {}}}
        ended = {"name": "node", "restartCount": 0, "state": {"terminated": {"exitCode": code}}}
        case.put(PODS, "llm-node-0-1", {"status": {"containerStatuses": [ended, shipper]}}, by="kubelet")
        assert len(self.restart_after_reading(case)) == violations

    @pytest.mark.parametrize(("again", "violations"), [(False, 0), (True, 1)])
    def test_what_a_rule_says_of_the_run_before_a_suspension_is_void(self, again: bool, violations: int) -> None:
        """Seed 2514: a sidecar had kept the pod from being Failed, so the Job never applied the rule."""
        case = Case(NativeFirst)
        case.job("job-1", podFailurePolicy={"rules": [FAIL_JOB]})
        shipper = {"name": "shipper", "restartCount": 0, "state": {"running": {}}}
        ended = {"name": "node", "restartCount": 0, "state": {"terminated": {"exitCode": 42}}}
        case.put(PODS, "llm-node-0-1", {"status": {"containerStatuses": [ended, shipper]}}, by="kubelet")
        case.job("job-1", suspend=True)
        case.drop(PODS, "llm-node-0-1", by="job-controller")
        case.job("job-1", suspend=False)
        case.pod(1, "job-1")
        case.fails(1, 42 if again else 1)
        assert len(self.restart_after_reading(case)) == violations

    def test_a_pod_that_failed_after_its_training_succeeded_is_left_to_the_platform(self) -> None:
        case = Case(NativeFirst)
        ended = [
            {"name": name, "restartCount": 0, "state": {"terminated": {"exitCode": code}}}
            for name, code in (("node", 0), ("shipper", 137))
        ]
        case.put(PODS, "llm-node-0-1", {"status": {"phase": "Failed", "containerStatuses": ended}}, by="kubelet")
        assert "had succeeded when the pod failed" in self.restart_after_reading(case)[0]

    @pytest.mark.parametrize(("lost_again", "violations"), [(False, 0), (True, 1)])
    def test_what_was_decided_about_a_loss_says_nothing_of_a_node_that_is_faulty_later(
        self, lost_again: bool, violations: int
    ) -> None:
        """Seed 17507: the JobSet allowed no more restarts, the Job replaced its pods, and the incident was closed."""
        case = Case(NativeFirst)
        case.jobset(spec={"replicatedJobs": [{"name": "node"}], "failurePolicy": {"maxRestarts": 0}})
        case.lose_a_pod()
        case.ledger(closed(opened(1000), 1010, Outcome.OBSERVED, Reason.LEFT_TO_KUBERNETES))
        empty = Snapshot(KEY, None, None, (), ())
        case.ledger(into_history(closed(opened(1000), 1010, Outcome.OBSERVED, Reason.LEFT_TO_KUBERNETES), empty))
        case.now += 600
        if lost_again:
            case.fails(0, 1)
        case.reads_live()
        case.ledger(restarted(opened(1600, number=2), case.now))
        assert len(case.found) == violations

    @pytest.mark.parametrize(("action", "violations"), [(AttemptAction.RECREATE_GROUP, 1), (AttemptAction.GROW, 0)])
    def test_what_was_decided_about_a_loss_says_nothing_of_a_growth(
        self, action: AttemptAction, violations: int
    ) -> None:
        case = Case(NativeFirst)
        case.jobset(spec={"replicatedJobs": [{"name": "node"}], "failurePolicy": {"maxRestarts": 0}})
        case.lose_a_pod()
        replaces(case)
        case.now += 600
        case.reads_live()
        case.ledger(restarted(opened(1600), case.now, action=action))
        assert len(case.found) == violations

    def test_what_was_decided_after_the_read_could_not_be_known(self) -> None:
        case = Case(NativeFirst)
        case.job("job-1", podFailurePolicy={"rules": [FAIL_JOB]})
        case.lose_a_pod()
        case.reads_live()
        case.fails(0, 42)
        case.ledger(restarted(opened(1000), 1000))
        assert case.found == []

    def test_a_write_that_was_long_on_its_way_is_not_judged(self) -> None:
        case = Case(NativeFirst)
        case.job("job-1", podFailurePolicy={"rules": [FAIL_JOB]})
        case.fails(1, 42)
        late = TrialFault(FaultKey(CONTROLLER, 3, FaultKind.DELAYED), 20)
        assert self.restart_after_reading(case, fault=late) == []

    @pytest.mark.parametrize(("limit", "violations"), [(0, 1), (6, 0)])
    def test_a_backoff_limit_of_zero_is_a_decision(self, limit: int, violations: int) -> None:
        case = Case(NativeFirst)
        case.job("job-1", backoffLimit=limit)
        case.fails(1, 1)
        assert len(self.restart_after_reading(case)) == violations

    @pytest.mark.parametrize(("counted", "violations"), [(1, 1), (0, 0)])
    def test_an_exhausted_failure_policy_is_one(self, counted: int, violations: int) -> None:
        case = Case(NativeFirst)
        case.put(JOB_SETS, "llm", {"spec": {"failurePolicy": {"maxRestarts": 1}}})
        case.jobset(status={"restartsCountTowardsMax": counted})
        case.fails(1, 1)
        assert len(self.restart_after_reading(case)) == violations

    @pytest.mark.parametrize(
        ("reason", "policy", "violations"),
        [
            ("BackoffLimitExceeded", None, 0),
            ("BackoffLimitExceeded", {"maxRestarts": 3}, 1),
            ("DeadlineExceeded", None, 1),
        ],
    )
    def test_a_failing_job_is_its_jobsets_business(self, reason: str, policy: Any, violations: int) -> None:
        case = Case(NativeFirst)
        if policy is not None:
            case.put(JOB_SETS, "llm", {"spec": {"failurePolicy": policy}})
        failing = {"type": "FailureTarget", "status": "True", "reason": reason}
        case.put(JOBS, "llm-node-0", {"status": {"conditions": [failing]}}, by="job-controller")
        assert len(self.restart_after_reading(case)) == violations

    def test_a_restart_of_the_jobset_is_not_doubled(self) -> None:
        case = Case(NativeFirst)
        case.fails(1, 1)
        case.jobset(status={"restarts": 1})
        assert "JobSet llm restarts the group itself" in self.restart_after_reading(case)[0]

    def test_one_of_a_jobset_that_was_recreated_since_is_past(self) -> None:
        """Seed 1758."""
        case = Case(NativeFirst)
        case.fails(1, 1)
        case.jobset(status={"restarts": 1})
        case.drop(JOB_SETS, "llm")
        case.jobset()
        assert self.restart_after_reading(case) == []

    def test_a_training_that_has_succeeded_is_left_alone_even_by_hand(self) -> None:
        case = Case(NativeFirst)
        case.put(PODS, "llm-node-0-1", {"status": {"phase": "Succeeded"}}, by="kubelet")
        case.reads_live()
        case.ledger(by_hand(restarted(opened(1000), 1000), 1000))
        assert "pod llm-node-0-1 has Succeeded" in case.found[0]

    def test_a_person_may_restart_against_other_decisions(self) -> None:
        case = Case(NativeFirst)
        case.job("job-1", backoffLimit=0)
        case.fails(1, 1)
        case.reads_live()
        case.ledger(by_hand(restarted(opened(1000), 1000), 1000))
        assert case.found == []
