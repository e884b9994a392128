"""MPI: the sum of the nodes, the hostfile, and what Trainer refuses."""

import pytest

from recovery.launch.launch import Launch
from recovery.launch.mpi import check, settings
from recovery.launch.places import written
from tests.unit.launch.manifests import group, told, values

LAUNCHER = "container node of ReplicatedJob launcher"


def job(trainer: str = "", mpi: str = "", policy: str = "") -> Launch:
    return group(
        f"kind: TrainJob\nspec: {{trainer: {{{trainer}}}}}\n---\n"
        f"kind: ClusterTrainingRuntime\nspec: {{mlPolicy: {{mpi: {{{mpi}}}, {policy}}}}}",
        base="mpi",
    )


def without(lacking: str, nodes: str, *, launcher_as_node: bool = True) -> Launch:
    """A runtime with one ReplicatedJob: `launcher`, `node`, or one of another name."""
    name = {"node": "launcher", "launcher": "node", "both": "worker"}[lacking]
    return group(
        f"""
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {{name: mix}}
spec: {{runtimeRef: {{name: custom}}, trainer: {{numNodes: {nodes}}}}}
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {{name: custom}}
spec:
  mlPolicy: {{mpi: {{runLauncherAsNode: {str(launcher_as_node).lower()}}}}}
  template:
    spec:
      replicatedJobs:
      - name: {name}
        template: {{spec: {{template: {{spec: {{containers: [{{name: node}}]}}}}}}}}
""",
        base="none",
    )


@pytest.mark.parametrize(
    ("nodes", "launcher_as_node", "launcher", "node", "train"),
    [
        # The launcher counts as one of numNodes, and `node` has at least one pod.
        ("1", "true", "1", "1", "2"),
        ("2", "true", "1", "1", "2"),
        ("3", "true", "1", "2", "3"),
        ("128", "true", "1", "127", "128"),
        # Without numNodes in the TrainJob, `node` keeps its own parallelism.
        ("null", "true", "1", "1", "2"),
        # The launcher does not train.
        ("1", "false", "1", "1", "1"),
        ("4", "false", "1", "4", "4"),
    ],
)
def test_the_sum_of_the_nodes(nodes: str, launcher_as_node: str, launcher: str, node: str, train: str) -> None:
    found = values(settings(job(f"numNodes: {nodes}", f"runLauncherAsNode: {launcher_as_node}")))

    assert found[("ReplicatedJob launcher", "parallelism and completions")] == launcher
    assert found[("ReplicatedJob node", "parallelism and completions")] == node
    assert found[("JobSet", "pods that train")] == train


def test_the_sum_is_explained() -> None:
    rules = {(each.target, each.name): each.rule for each in settings(job())}

    assert rules[("ReplicatedJob node", "parallelism and completions")] == (
        "numNodes 4 less 1, as the launcher is a node too (runLauncherAsNode), and at least 1"
    )
    assert rules[("ReplicatedJob launcher", "parallelism and completions")] == (
        "mlPolicy.numNodes of the runtime, whatever the TrainJob says; 1 by default"
    )
    assert rules[("JobSet", "pods that train")] == "launcher and node"


def test_hostfile_and_environment_of_mpirun() -> None:
    found = values(settings(job()))

    assert found[("ConfigMap mix-mpi-hostfile", "hostfile")] == (
        "mix-node-0-0.mix to mix-node-0-2.mix slots=8; mix-launcher-0-0.mix slots=8"
    )
    assert {name: value for (target, name), value in found.items() if target == LAUNCHER} == {
        "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_orte_set_default_slots": "8",
        "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
    }


def test_a_launcher_that_does_not_train_has_no_line_in_the_hostfile() -> None:
    found = values(settings(job(mpi="runLauncherAsNode: false")))

    assert found[("ConfigMap mix-mpi-hostfile", "hostfile")] == "mix-node-0-0.mix to mix-node-0-3.mix slots=8"


@pytest.mark.parametrize(
    ("lacking", "told_of", "fix"),
    [
        ("node", "no node", "add a ReplicatedJob node before the launcher, whose container node runs sshd"),
        (
            "launcher",
            "no launcher",
            "add a ReplicatedJob launcher marked as trainer that runs mpirun, with dependsOn node Ready",
        ),
        (
            "both",
            "no launcher and no node",
            "add a ReplicatedJob launcher marked as trainer that runs mpirun, with dependsOn node Ready and a "
            "ReplicatedJob node before the launcher, whose container node runs sshd",
        ),
    ],
)
def test_two_nodes_and_more_need_both_replicated_jobs(lacking: str, told_of: str, fix: str) -> None:
    launch = without(lacking, "4")
    (finding,) = check(launch)

    assert told(check, launch) == [
        "mpi-jobs: numNodes 4 under runLauncherAsNode is 1 pod of the ReplicatedJob launcher and 3 of node, and "
        f"runtime custom has {told_of}: Trainer's webhook refuses the job ({fix}; or write numNodes: 1)"
    ]
    assert written(finding.place.path) == "spec.trainer.numNodes"


@pytest.mark.parametrize("nodes", ["1", "null"])
def test_one_node_needs_neither(nodes: str) -> None:
    assert told(check, without("node", nodes)) == []


def test_neither_is_needed_where_the_launcher_does_not_train() -> None:
    assert told(check, without("launcher", "4", launcher_as_node=False)) == []


@pytest.mark.parametrize(
    ("launch", "sentence"),
    [
        (
            job(mpi="mpiImplementation: Intel"),
            "mpi-implementation: mpiImplementation is Intel, and Trainer 2.3 starts OpenMPI only "
            "(write OpenMPI, or remove it)",
        ),
        (
            job("numNodes: 1"),
            "mpi-one-is-two: numNodes 1 under runLauncherAsNode makes 2 pods that train: the launcher and, always, 1 "
            "of node (write numNodes: 2 if both are meant, else use a runtime without the ReplicatedJob node)",
        ),
        (
            job(policy="numNodes: 4"),
            "mpi-launchers: mlPolicy.numNodes 4 makes 4 launchers, because the ReplicatedJob launcher is the one "
            "marked as trainer: mpirun starts 4 times over, while node keeps its own number of pods (write "
            "mlPolicy.numNodes: 1, and the number of nodes as spec.trainer.numNodes of the TrainJob)",
        ),
        (
            job(mpi="runLauncherAsNode: false"),
            "mpi-resources: resourcesPerNode (8 nvidia.com/gpu) goes to the launcher, which only runs mpirun without "
            "runLauncherAsNode, and the pods of node keep what the runtime gives them (write the accelerators into the "
            "ReplicatedJob node of the runtime, and remove them from resourcesPerNode)",
        ),
    ],
    ids=["implementation", "one node", "launchers", "resources"],
)
def test_what_is_told(launch: Launch, sentence: str) -> None:
    assert told(check, launch) == [sentence]


def test_resources_go_to_the_nodes_where_those_are_marked_as_trainer() -> None:
    marked = "[{name: node, template: {metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}}}]"
    launch = group(
        "kind: ClusterTrainingRuntime\nspec: {mlPolicy: {mpi: {runLauncherAsNode: false}}, "
        f"template: {{spec: {{replicatedJobs: {marked}}}}}}}",
        base="mpi",
    )

    assert told(check, launch) == []


@pytest.mark.parametrize(
    "launch",
    [
        job(),
        job("numNodes: 2"),
        job("numNodes: null"),
        job("resourcesPerNode: null", "runLauncherAsNode: false"),
        job("resourcesPerNode: {limits: {nvidia.com/gpu: null}}", "runLauncherAsNode: false"),
        job("numNodes: 1, resourcesPerNode: null", "runLauncherAsNode: false, mpiImplementation: null"),
        group(),
        group(base="jobset"),
    ],
    ids=["as it is", "2", "no numNodes", "no resources", "CPUs only", "launcher apart", "torch", "JobSet"],
)
def test_what_is_right(launch: Launch) -> None:
    assert told(check, launch) == []
