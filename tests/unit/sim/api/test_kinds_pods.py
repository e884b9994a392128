"""Pods: the defaults of a new pod, the changes that are allowed, and what keeps new pods out."""

from typing import Any

import pytest

from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.kinds.pods import PodAdmission, pod_kind
from recovery.sim.api.status_error import FieldCause, StatusError

NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"


def made(**spec: Any) -> Body:
    """A pod with this spec, as the server stores it."""
    body: Body = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "node", "image": "train:1"}], **spec}}
    kind = pod_kind()
    kind.default(body, None)
    assert tuple(kind.validate(body, None)) == ()
    return body


def updated(before: Body, **spec: Any) -> tuple[FieldCause, ...]:
    """Why the server refuses such a change of the spec. A value of None removes the field."""
    changed = {name: value for name, value in {**before["spec"], **spec}.items() if value is not None}
    body = {**before, "spec": changed}
    kind = pod_kind()
    kind.default(body, before)
    return tuple(kind.validate(body, before))


def tolerations(body: Body) -> list[tuple[str, int | None]]:
    return [(each.get("key", ""), each.get("tolerationSeconds")) for each in body["spec"]["tolerations"]]


def test_a_new_pod_is_pending_with_what_it_does_not_say_itself() -> None:
    pod = made()
    assert pod["spec"]["restartPolicy"] == "Always"
    assert pod["spec"]["terminationGracePeriodSeconds"] == 30
    assert pod["spec"]["schedulerName"] == "default-scheduler"
    assert pod["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


def test_what_a_pod_says_itself_stands() -> None:
    pod = made(restartPolicy="Never", terminationGracePeriodSeconds=0, schedulerName="kueue")
    assert pod["spec"]["restartPolicy"] == "Never"
    assert pod["spec"]["terminationGracePeriodSeconds"] == 0
    assert pod["spec"]["schedulerName"] == "kueue"


def test_a_status_that_comes_with_a_new_pod_is_not_taken() -> None:
    body: Body = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "n"}]}, "status": {"phase": "Running"}}
    pod_kind().default(body, None)
    assert body["status"]["phase"] == "Pending"


def test_the_template_that_a_pod_is_made_from_stays_as_it_is() -> None:
    container = {"name": "node", "readinessProbe": {}, "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    template = {"containers": [container]}
    pod_kind().default({"metadata": {"name": "a"}, "spec": template}, None)
    assert template == {"containers": [container]}
    assert container == {"name": "node", "readinessProbe": {}, "resources": {"limits": {"nvidia.com/gpu": "8"}}}


def test_a_pod_stays_five_minutes_on_a_lost_node_unless_it_says_otherwise() -> None:
    assert tolerations(made()) == [(NOT_READY, 300), (UNREACHABLE, 300)]
    own = {"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 10}
    assert tolerations(made(tolerations=[own])) == [(UNREACHABLE, 10), (NOT_READY, 300)]
    assert tolerations(made(tolerations=[{"operator": "Exists"}])) == [("", None)]


def test_a_toleration_of_another_effect_is_no_answer_to_a_lost_node() -> None:
    own = {"key": NOT_READY, "operator": "Exists", "effect": "NoSchedule"}
    assert tolerations(made(tolerations=[own])) == [(NOT_READY, None), (NOT_READY, 300), (UNREACHABLE, 300)]


def test_what_a_container_requests_is_what_it_is_limited_to() -> None:
    limits = {"nvidia.com/gpu": "8", "cpu": "4"}
    pod = made(containers=[{"name": "node", "resources": {"limits": limits, "requests": {"cpu": "2"}}}])
    assert pod["spec"]["containers"][0]["resources"]["requests"] == {"nvidia.com/gpu": "8", "cpu": "2"}


def test_a_probe_asks_every_ten_seconds_unless_it_says_otherwise() -> None:
    probe = {"exec": {"command": ["true"]}}
    pod = made(containers=[{"name": "a", "readinessProbe": {**probe, "periodSeconds": 1}}])
    assert pod["spec"]["containers"][0]["readinessProbe"] == {
        **probe,
        "periodSeconds": 1,
        "timeoutSeconds": 1,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    unsaid = made(containers=[{"name": "a", "readinessProbe": probe}])
    assert unsaid["spec"]["containers"][0]["readinessProbe"]["periodSeconds"] == 10


@pytest.mark.parametrize(
    ("resources", "quality"),
    [
        ({}, "BestEffort"),
        ({"limits": {"nvidia.com/gpu": "8"}}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}, "Burstable"),
    ],
)
def test_a_pod_has_the_quality_that_its_cpu_and_memory_give_it(resources: Body, quality: str) -> None:
    assert made(containers=[{"name": "node", "resources": resources}])["status"]["qosClass"] == quality


def test_a_pod_without_containers_is_refused() -> None:
    body: Body = {"metadata": {"name": "a"}, "spec": {}}
    pod_kind().default(body, None)
    assert tuple(pod_kind().validate(body, None)) == (
        FieldCause("spec.containers", "Required value", "FieldValueRequired"),
    )


@pytest.mark.parametrize("node", [None, "gpu-0"])
def test_no_update_moves_a_pod_to_a_node(node: str | None) -> None:
    [cause] = updated(made() if node is None else made(nodeName=node), nodeName="gpu-1")
    assert cause.field == "spec"
    assert cause.message.startswith("Forbidden: pod updates may not change fields other than")


@pytest.mark.parametrize(
    "change",
    [
        {"restartPolicy": "Never"},
        {"terminationGracePeriodSeconds": 1},
        {"containers": [{"name": "node", "image": "train:1", "command": ["true"]}]},
        {"nodeSelector": {"a": "b"}},
    ],
)
def test_most_of_a_pod_never_changes(change: Body) -> None:
    assert [cause.reason for cause in updated(made(), **change)] == ["FieldValueForbidden"]


def test_an_image_and_a_shorter_deadline_may_change() -> None:
    assert updated(made(), containers=[{"name": "node", "image": "train:2"}]) == ()
    assert updated(made(), activeDeadlineSeconds=10) == ()
    assert updated(made(activeDeadlineSeconds=10), activeDeadlineSeconds=5) == ()
    assert [cause.field for cause in updated(made(activeDeadlineSeconds=10), activeDeadlineSeconds=11)] == [
        "spec.activeDeadlineSeconds"
    ]
    assert [cause.field for cause in updated(made(activeDeadlineSeconds=10), activeDeadlineSeconds=None)] == [
        "spec.activeDeadlineSeconds"
    ]


def test_no_container_is_added() -> None:
    [cause] = updated(made(), containers=[{"name": "node", "image": "train:1"}, {"name": "b"}])
    assert cause.message == "Forbidden: pod updates may not add or remove containers"


def test_tolerations_are_added_and_lengthened_but_never_taken_away() -> None:
    pod = made()
    first, second = pod["spec"]["tolerations"]
    assert updated(pod, tolerations=[first, {**second, "tolerationSeconds": 5}, {"key": "more"}]) == ()
    taken = updated(made(tolerations=[{"key": "own"}]), tolerations=[first, second])
    assert [cause.field for cause in taken] == ["spec.tolerations"]


def test_a_write_that_leaves_the_spec_alone_is_not_looked_at() -> None:
    pod = made()
    body = {**pod, "status": {"phase": "Running"}}
    spec = body["spec"]
    pod_kind().default(body, pod)
    assert body["spec"] is spec
    assert tuple(pod_kind().validate(body, pod)) == ()


def test_admission_refuses_new_pods_for_as_long_as_it_is_told_to() -> None:
    admission = PodAdmission()
    kind = pod_kind(admission)
    pod: Body = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "node"}]}}
    kind.default(dict(pod), None)
    stored = dict(pod)
    kind.default(stored, None)

    admission.refusal = 'admission webhook "pods.example.com" denied the request: not now'
    with pytest.raises(StatusError) as refused:
        kind.default(dict(pod), None)
    assert (refused.value.code, refused.value.reason, refused.value.message) == (403, "Forbidden", admission.refusal)
    kind.default({**stored, "status": {"phase": "Running"}}, stored)

    admission.refusal = None
    kind.default(dict(pod), None)
