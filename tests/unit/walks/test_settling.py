"""What is still in progress although nothing changes at the moment."""

from tests.contract.scene import Object
from tests.unit.walks.objects import AT, condition, job, pod, stories
from tests.walks.settling import unsettled

NODE = "walk-1-abc-0"


def under_way(*bodies: Object, closed: tuple[str, ...] = (), silent: tuple[str, ...] = ()) -> str:
    return unsettled(stories(*(("ADDED", body) for body in bodies)), set(closed), set(silent))


def whole() -> tuple[Object, Object, Object]:
    one = job(active=2, ready=2, startTime=AT)
    return one, pod(one, 0, "pod-1"), pod(one, 1, "pod-2")


def test_a_job_whose_pods_run_and_are_counted_has_settled() -> None:
    assert under_way(*whole()) == ""


def test_a_missing_pod_will_come() -> None:
    one = job(active=1, ready=1, startTime=AT)
    assert under_way(one, pod(one, 0, "pod-1")) == "Job llm-node-0 has too few pods"


def test_a_pod_that_is_not_counted_will_be() -> None:
    _, *pods = whole()
    assert under_way(job(active=2, ready=1, startTime=AT), *pods) == "Job llm-node-0 has not counted its pods"


def test_a_deleted_pod_will_go_unless_its_node_is_silent() -> None:
    one = job(active=1, ready=1, terminating=1, startTime=AT)
    going = pod(one, 1, "pod-2", deletionTimestamp=AT)
    assert under_way(one, pod(one, 0, "pod-1"), going) == "Pod llm-node-0-1-abcde is being deleted"
    assert under_way(one, pod(one, 0, "pod-1"), going, silent=(NODE,)) == ""


def test_a_pod_without_a_node_waits_for_it_only_if_it_may_go_there() -> None:
    one = job(active=2, ready=1, startTime=AT)
    unbound = pod(one, 1, "pod-2", "Pending")
    unbound["spec"] = {"nodeSelector": {"kubernetes.io/hostname": NODE}}
    assert under_way(one, pod(one, 0, "pod-1"), unbound) == "Pod llm-node-0-1-abcde has no node yet"
    assert under_way(one, pod(one, 0, "pod-1"), unbound, closed=(NODE,)) == ""


def test_a_container_without_its_image_waits_for_ever_and_one_in_a_crash_loop_does_not() -> None:
    one, first, second = whole()
    for reason, said in (("ImagePullBackOff", ""), ("CrashLoopBackOff", "node waits, CrashLoopBackOff")):
        second["status"]["containerStatuses"][0]["state"] = {"waiting": {"reason": reason}}
        assert under_way(one, first, second).endswith(said)


def test_a_job_that_fails_will_have_failed_unless_it_is_suspended_without_a_start() -> None:
    target = condition("FailureTarget")
    assert under_way(job("job-1", "llm-node-0", target, startTime=AT)) == "Job llm-node-0 is ending"
    suspended = job("job-1", "llm-node-0", target, condition("Suspended"))
    suspended["spec"]["suspend"] = True
    assert under_way(suspended) == ""
