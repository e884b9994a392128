"""Whether the ranks of a pod have enough shared memory."""

from decimal import Decimal

import pytest

from recovery.launch.launch import Launch
from recovery.launch.places import Place, written
from recovery.launch.recoverability import shared_memory
from recovery.launch.views import Mount, Resources, Volume
from tests.unit.launch.groups import MAIN, PODS, container, group, job, names, only, pods
from tests.unit.launch.manifests import group as from_manifest
from tests.unit.launch.manifests import volcano_job


def of(
    device: str = "nvidia.com/gpu", count: int = 8, *mounts: Mount, medium: str = "Memory", **changed: object
) -> Launch:
    main = container(resources=Resources(MAIN / "resources", limits={device: Decimal(count)}), mounts=mounts)
    volumes = (
        Volume("shm", PODS / "volumes" / 0, "emptyDir", medium),
        Volume("host", PODS / "volumes" / 1, "hostPath"),
    )
    return group(job(pods(main, volumes=volumes, **changed)), gpus_per_pod=count)


@pytest.mark.parametrize("device", ["nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi"])
def test_eight_ranks_have_64_mib(device: str) -> None:
    finding = only(shared_memory.check(of(device)))

    assert finding.code.name == "small-shm"
    assert finding.place == MAIN
    assert finding.fix.startswith("mount an emptyDir with medium: Memory at /dev/shm in container node")


@pytest.mark.parametrize(
    "launch",
    [
        of("nvidia.com/gpu", 2),
        of("google.com/tpu", 4),
        of("nvidia.com/gpu", 8, Mount("shm", "/dev/shm")),
        of("nvidia.com/gpu", 8, Mount("shm", "/dev/shm/")),
        of("nvidia.com/gpu", 8, Mount("host", "/dev/shm")),
        of("nvidia.com/gpu", 8, Mount("host", "/dev")),
        of(host_ipc=True),
        of(annotations={"io.kubernetes.cri-o.ShmSize": "16Gi"}),
    ],
)
def test_enough_memory_is_not_told_of(launch: Launch) -> None:
    assert names(shared_memory.check(launch)) == []


def test_a_volume_elsewhere_is_none() -> None:
    assert names(shared_memory.check(of("nvidia.com/gpu", 8, Mount("shm", "/shm")))) == ["small-shm"]


def test_a_disk_is_no_memory() -> None:
    finding = only(shared_memory.check(of("nvidia.com/gpu", 8, Mount("shm", "/dev/shm"), medium="")))

    assert finding.fix == "write emptyDir: {medium: Memory}"


@pytest.mark.parametrize("field", ["hostIPC: true", "hostIPC: false"])
def test_the_manifest_is_read(field: str) -> None:
    mounts = "volumeMounts: [{name: shm, mountPath: /tmp}]"
    spec = f"{{spec: {{template: {{spec: {{{field}, containers: [{{name: trainer, {mounts}}}]}}}}}}}}"
    launch = from_manifest(
        f"kind: JobSet\nspec: {{replicatedJobs: [{{name: worker, template: {spec}}}]}}", base="jobset"
    )

    found = [written(each.place.path) for each in shared_memory.check(launch)]
    assert found == ([] if "true" in field else [written(_container(launch))])


def _container(launch: Launch) -> tuple[str | int, ...]:
    main = launch.members[0].main
    assert main is not None
    assert isinstance(main.place, Place)
    return main.place.path


def test_a_patch_of_the_trainjob_may_mount_it() -> None:
    patch = """
kind: TrainJob
spec:
  runtimePatches:
  - manager: example.com/team
    trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: {
      volumes: [{name: memory, emptyDir: {medium: Memory}}],
      containers: [{name: node, volumeMounts: [{name: memory, mountPath: /dev/shm}]}]}}}}}]}}}
---
kind: ClusterTrainingRuntime
spec: {template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: {
  containers: [{name: node, volumeMounts: [{name: shm, mountPath: /tmp}]}]}}}}}]}}}
"""
    assert names(shared_memory.check(from_manifest(patch))) == []


def test_a_task_of_volcano_is_judged_too() -> None:
    worker = (
        "{name: worker, template: {spec: {containers: [{name: pytorch, resources: {limits: {nvidia.com/gpu: 8}}}]}}}"
    )
    (finding,) = shared_memory.check_volcano(volcano_job(f"kind: Job\nspec: {{tasks: [{worker}]}}"))

    assert written(finding.place.path) == "spec.tasks[1].template.spec.containers[0]"
