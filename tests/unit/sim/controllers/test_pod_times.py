"""When a pod finished. The Job controller counts the wait of the next pod from that time."""

from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.metadata import moment_of
from recovery.sim.controllers.job_pods import finished_at

BORN = "2026-11-02T08:00:00Z"
TRAINER_ENDED = "2026-11-02T08:00:10Z"
SIDECAR_ENDED = "2026-11-02T08:00:15Z"


def ended(name: str, at: str) -> Body:
    return {"name": name, "state": {"terminated": {"exitCode": 1, "finishedAt": at}}}


def pod(init_containers: list[Body]) -> Body:
    status = {
        "containerStatuses": [ended("node", TRAINER_ENDED)],
        "initContainerStatuses": [ended("side", SIDECAR_ENDED)],
    }
    spec = {"containers": [{"name": "node"}], "initContainers": init_containers}
    return {"metadata": {"creationTimestamp": BORN}, "spec": spec, "status": status}


def test_a_native_sidecar_that_outlived_the_containers_dates_the_end_of_its_pod() -> None:
    assert finished_at(pod([{"name": "side", "restartPolicy": "Always"}])) == moment_of(SIDECAR_ENDED)


def test_an_init_container_does_not() -> None:
    assert finished_at(pod([{"name": "side"}])) == moment_of(TRAINER_ENDED)
