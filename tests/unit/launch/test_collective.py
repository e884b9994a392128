"""What a launch shows about the program: whether its ranks form one collective, and who starts them."""

import json
from typing import Any

import msgspec
import pytest
import yaml

from recovery.core.diagnosis.collective import collective_of
from recovery.kube.projections.workloads import decode_job
from recovery.launch.collective import ShownCollective, ShownProgram, shown_by
from recovery.launch.places import Place
from recovery.launch.recoverability import collective
from recovery.launch.views import Container, EnvVar
from tests.unit.core.groups import training
from tests.unit.kube.store_world import job as job_object
from tests.unit.launch.manifests import group, runtime_alone, told, values
from tests.unit.launch.pages import NONE

Manifest = dict[str, Any]
ANNOTATION = "recovery.trainjob.dev/collective"

HEALS, REQUIRED, INDEPENDENT = ShownCollective.SELF_HEALING, ShownCollective.REQUIRED, ShownCollective.INDEPENDENT


def shown(*command: str, **env: str | None) -> ShownProgram | None:
    variables = tuple(EnvVar(name, Place(0), value) for name, value in env.items())
    return shown_by(Container("node", Place(0), command=command, env=variables))


def by(*command: str, **env: str | None) -> str:
    """The part of the launch that shows a program that heals itself. Empty: nothing does."""
    found = shown(*command, **env)
    assert found is None or found.collective is HEALS
    return "" if found is None else found.by


# --- torchrun ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "part"),
    [
        (("torchrun", "--max-restarts=3", "train.py"), "torchrun --max-restarts=3"),
        (("torchrun", "--max_restarts", "3", "train.py"), "torchrun --max-restarts=3"),
        (("python", "-m", "torch.distributed.run", "--max-restarts=1", "t.py"), "torchrun --max-restarts=1"),
        (("tune", "run", "--max-restarts=2", "full_finetune"), "torchrun --max-restarts=2"),
        (("sh", "-c", "cd /w && exec torchrun --max-restarts=3 train.py | tee log"), "torchrun --max-restarts=3"),
        (("numactl", "--cpunodebind=0", "/opt/bin/torchrun", "--max-restarts=3", "t.py"), "torchrun --max-restarts=3"),
        (("torchrun", "--nnodes=2:4", "--rdzv-backend=c10d", "t.py"), "torchrun --nnodes=2:4 with c10d"),
        (("torchrun", "--nnodes=2:4", "--rdzv_backend", "etcd-v2", "t.py"), "torchrun --nnodes=2:4 with etcd-v2"),
        # A plain group.
        (("torchrun", "train.py"), ""),
        (("torchrun", "--max-restarts=0", "train.py"), ""),
        (("torchrun", "--max-restarts=3", "--max-restarts=0", "train.py"), ""),
        (("torchrun", "--max-restarts=$RESTARTS", "train.py"), ""),
        (("torchrun", "train.py", "--max-restarts=3"), ""),
        (("python", "train.py", "--max-restarts=3"), ""),
        # The static rendezvous waits for the larger number, and a range of one number is none.
        (("torchrun", "--nnodes=2:4", "t.py"), ""),
        (("torchrun", "--nnodes=4:4", "--rdzv-backend=c10d", "t.py"), ""),
        (("torchrun", "--nnodes=4", "--rdzv-backend=c10d", "t.py"), ""),
        (("torchrun", "--nnodes=1:4", "--standalone", "--rdzv-backend=c10d", "t.py"), ""),
    ],
)  # fmt: skip
def test_torchrun_that_replaces_a_lost_rank(command: tuple[str, ...], part: str) -> None:
    assert by(*command) == part


def test_the_variables_of_torchrun_count_where_no_flag_says_otherwise() -> None:
    assert by("torchrun", "train.py", PET_MAX_RESTARTS="3") == "PET_MAX_RESTARTS=3"
    assert by("/entrypoint.sh", PET_MAX_RESTARTS="3") == "PET_MAX_RESTARTS=3"
    assert by("sh", "-c", "export PET_MAX_RESTARTS=2; torchrun t.py") == "PET_MAX_RESTARTS=2"
    assert by("sh", "-c", "PET_MAX_RESTARTS=2 torchrun t.py", PET_MAX_RESTARTS="0") == "PET_MAX_RESTARTS=2"
    assert by("torchrun", "t.py", PET_NNODES="2:4", PET_RDZV_BACKEND="c10d") == "PET_NNODES=2:4 with c10d"
    assert by("torchrun", "--rdzv-backend=c10d", "t.py", PET_NNODES="2:4") == "PET_NNODES=2:4 with c10d"
    assert by("torchrun", "--max-restarts=0", "t.py", PET_MAX_RESTARTS="3") == ""
    assert by("torchrun", "t.py", PET_MAX_RESTARTS="0", PET_NNODES="4") == ""
    assert by("torchrun", "t.py", PET_MAX_RESTARTS=None) == ""


def test_a_flag_with_a_variable_of_the_container_has_its_value() -> None:
    assert by("torchrun", "--max-restarts=$(RESTARTS)", "t.py", RESTARTS="3") == "torchrun --max-restarts=3"
    assert by("sh", "-c", "torchrun --max-restarts=$RESTARTS t.py", RESTARTS="3") == "torchrun --max-restarts=3"


SDK = """
read -r -d '' SCRIPT << EOM
def train():
    print("it's a rank")
EOM
if [ -n "$DEBUG" ]; then set -x; fi
printf "%s" "$SCRIPT" > train.py
# torchrun --max-restarts=9 train.py
torchrun --tee=3 \\
  --max-restarts=4 train.py
"""


def test_a_script_that_is_more_than_a_list_of_commands_is_searched_by_lines() -> None:
    assert by("bash", "-c", SDK) == "torchrun --max-restarts=4"


def test_a_script_that_is_too_long_is_not_searched() -> None:
    assert by("bash", "-c", "echo << E\n" * 2_500 + SDK) == ""


# --- other programs ------------------------------------------------------------------------------------------------


def test_torchft_and_the_launcher_of_nvidia_resiliency_ext_replace_a_lost_rank() -> None:
    assert by("torchrun", "train_ddp.py", TORCHFT_LIGHTHOUSE="http://lighthouse:29510") == "TORCHFT_LIGHTHOUSE"
    assert by("torchrun", "train_ddp.py", TORCHFT_LIGHTHOUSE=None) == "TORCHFT_LIGHTHOUSE"
    assert by("sh", "-c", "TORCHFT_LIGHTHOUSE=http://l:29510 torchrun t.py") == "TORCHFT_LIGHTHOUSE"
    assert by("torchrun", "-m", "torchtitan.train", "--fault_tolerance.enable") == "--fault_tolerance.enable"
    assert by("ft_launcher", "--nnodes=4", "train.py") == "ft_launcher"
    assert by("uv", "run", "ft_launcher", "train.py") == "ft_launcher"
    assert by("python", "-m", "nvidia_resiliency_ext.fault_tolerance.launcher", "train.py") == "ft_launcher"


@pytest.mark.parametrize(
    "command",
    [
        ("ray", "start", "--head", "--block"),
        ("sh", "-c", "ulimit -n 65536; /opt/ray/bin/ray start --address=head:6379 --block"),
        ("ray", "job", "submit", "--", "python", "train.py"),
    ],
)
def test_the_nodes_of_ray_are_independent(command: tuple[str, ...]) -> None:
    found = shown(*command)
    assert found is not None
    assert (found.collective, found.starts_all) == (INDEPENDENT, False)


@pytest.mark.parametrize(
    ("command", "program"),
    [
        (("mpirun", "-np", "8", "python", "train.py"), "mpirun"),
        (("sh", "-c", "cd /w && exec /usr/bin/mpiexec python train.py"), "mpiexec"),
        (("mpirun", "torchrun", "--max-restarts=3", "train.py"), "mpirun"),
    ],
)
def test_mpirun_starts_and_ends_all_ranks(command: tuple[str, ...], program: str) -> None:
    assert shown(*command) == ShownProgram(REQUIRED, program, starts_all=True)


def test_a_script_in_the_container_that_trainer_prepares_for_mpirun_is_the_launcher() -> None:
    assert shown("/run.sh", OMPI_MCA_orte_default_hostfile="/etc/mpi/hostfile") == ShownProgram(
        REQUIRED, "mpirun", starts_all=True
    )


def test_sshd_of_a_worker_shows_nothing() -> None:
    assert shown("/usr/sbin/sshd", "-De") is None
    assert shown() is None


# --- lint and explain-launch ---------------------------------------------------------------------------------------

RESTARTS = "{kind: TrainJob, spec: {trainer: {command: [torchrun, --max-restarts=3, train.py]}}}"


def annotated(value: str, more: str = "") -> str:
    return f"""
kind: TrainJob
metadata: {{annotations: {{recovery.trainjob.dev/collective: {value}}}}}
{more}
"""


ON_RUNTIME = """
kind: ClusterTrainingRuntime
metadata: {annotations: {recovery.trainjob.dev/collective: Independent}}
spec:
  template:
    spec:
      replicatedJobs:
      - name: node
        template:
          spec: {template: {metadata: {annotations: {recovery.trainjob.dev/collective: SelfHealing}}}}
"""
VARIABLE_OF_RUNTIME = """
kind: ClusterTrainingRuntime
spec:
  template:
    spec:
      replicatedJobs:
      - name: node
        template:
          spec:
            template:
              spec:
                containers:
                - name: node
                  env: [{name: PET_NNODES, value: "2:16"}, {name: PET_RDZV_BACKEND, value: c10d}]
"""


@pytest.mark.parametrize(
    ("fragment", "base", "value", "rule"),
    [
        ("", "torch", REQUIRED, "nothing in its launch shows otherwise"),
        (RESTARTS, "torch", HEALS, "torchrun --max-restarts=3 of ReplicatedJob node"),
        ("", "mpi", REQUIRED, "mpirun of ReplicatedJob launcher, which starts and ends all ranks"),
        (annotated("Independent"), "torch", INDEPENDENT,
         "the annotation recovery.trainjob.dev/collective of the TrainJob"),
        (annotated("elastic"), "torch", REQUIRED,
         "the annotation recovery.trainjob.dev/collective of the TrainJob has none of its values"),
        # An annotation of the runtime itself reaches no job. Trainer overrides its PET_NNODES.
        (ON_RUNTIME, "torch", HEALS,
         "the annotation recovery.trainjob.dev/collective of the pod template of ReplicatedJob node"),
        (VARIABLE_OF_RUNTIME, "torch", REQUIRED, "nothing in its launch shows otherwise"),
    ],
)  # fmt: skip
def test_the_setting_says_which_was_taken_and_why(fragment: str, base: str, value: ShownCollective, rule: str) -> None:
    (found,) = collective.settings(group(fragment, base=base))
    assert (found.target, found.name, found.value, found.rule) == ("program", "collective", value, rule)


def test_a_runtime_by_itself_shows_what_its_template_says() -> None:
    text = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: ray, annotations: {recovery.trainjob.dev/collective: Required}}
spec:
  mlPolicy: {numNodes: 4}
  template:
    spec:
      replicatedJobs:
      - name: node
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec: {template: {spec: {containers: [{name: node, image: ray, command: [ray, start, --block]}]}}}
"""
    assert values(collective.settings(runtime_alone(text))) == {("program", "collective"): "Independent"}


def test_an_annotation_that_contradicts_the_launch_is_a_finding() -> None:
    job = annotated("Independent", "spec: {trainer: {command: [torchrun, --max-restarts=3, train.py]}}")
    assert told(collective.check, group(job)) == [
        "collective-contradicts: the annotation recovery.trainjob.dev/collective of the TrainJob says Independent, and "
        "torchrun --max-restarts=3 of ReplicatedJob node shows a program that is SelfHealing: the controller follows "
        "the annotation, and never reports that the other ranks hang (remove the annotation, or keep it if you know "
        "the program better and silence this finding)"
    ]


def test_an_annotation_that_says_what_the_launch_shows_or_cannot_show_is_no_finding() -> None:
    agrees = annotated("SelfHealing", "spec: {trainer: {command: [torchrun, --max-restarts=3, train.py]}}")
    assert told(collective.check, group(agrees)) == []
    assert told(collective.check, group(annotated("SelfHealing"))) == []
    assert told(collective.check, group(annotated("Required"), base="mpi")) == []


def test_a_value_that_the_annotation_cannot_have_is_a_finding() -> None:
    assert told(collective.check, group(annotated("elastic"))) == [
        "collective-unknown: the annotation recovery.trainjob.dev/collective of the TrainJob says 'elastic', and the "
        "program counts as Required (write one of Required, SelfHealing, Independent)"
    ]


# --- the controller's answer ---------------------------------------------------------------------------------------


def manifest(command: list[str], on_template: str, on_workload: str) -> Manifest:
    template = {
        "metadata": {"annotations": {ANNOTATION: on_template}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "it:1.0", "command": command}]},
    }
    worker = {"name": "worker", "template": {"spec": {"parallelism": 4, "completions": 4, "template": template}}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "vision", "annotations": {ANNOTATION: on_workload}},
        "spec": {"replicatedJobs": [worker]},
    }


def by_controller(body: Manifest) -> str:
    job = job_object()
    job["spec"]["template"] = body["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    snapshot = training().with_workload(kind="JobSet", annotations=body["metadata"]["annotations"]).snapshot()
    facts = decode_job(json.dumps(job).encode()).value.facts
    return collective_of(msgspec.structs.replace(snapshot, jobs=(facts,))).collective


COMMANDS = (
    ["torchrun", "train.py"],
    ["torchrun", "--max-restarts=3", "train.py"],
    ["torchrun", "--nnodes=2:4", "--rdzv-backend=c10d", "train.py"],
    ["torchrun", "--tee=3", "train.py"],
)
VALUES = ("", "Required", "SelfHealing", "Independent", "elastic")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("on_template", VALUES)
@pytest.mark.parametrize("on_workload", VALUES)
def test_lint_and_the_controller_answer_alike(command: list[str], on_template: str, on_workload: str) -> None:
    body = manifest(command, on_template, on_workload)
    launch = group(yaml.safe_dump(body), base=NONE)
    assert [each.value for each in collective.settings(launch)] == [by_controller(body)]
