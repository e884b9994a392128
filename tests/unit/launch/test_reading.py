"""How an object is read, and what is wrong with the object by itself."""

from decimal import Decimal
from textwrap import dedent
from typing import Any

import pytest

from recovery.launch.documents import document_of, documents
from recovery.launch.findings import Severity
from recovery.launch.places import written
from recovery.launch.reading import Reading, read
from recovery.launch.views import JobSet, PyTorchJob, Runtime, TrainJob, VolcanoJob

TRAINER = "trainer.kubeflow.org/v1alpha1"


def read_text(text: str) -> Reading:
    (document,) = documents(dedent(text))
    return read(document)


def told(reading: Reading) -> list[tuple[str, str]]:
    """Code and field of each finding."""
    return [(finding.code.name, written(finding.place.path)) for finding in reading.findings]


def train_job(**spec: Any) -> Reading:
    return read(document_of({"apiVersion": TRAINER, "kind": "TrainJob", "metadata": {"name": "llama"}, "spec": spec}))


def runtime(**spec: Any) -> Reading:
    body = {"apiVersion": TRAINER, "kind": "TrainingRuntime", "metadata": {"name": "torch"}, "spec": spec}
    return read(document_of(body))


def test_a_train_job_is_read_with_the_place_of_every_field() -> None:
    reading = read_text("""\
        apiVersion: trainer.kubeflow.org/v1alpha1
        kind: TrainJob
        metadata:
          name: llama
          namespace: research
          labels: {team: nlp}
          annotations: {recovery.trainjob.dev/policy: large}
        spec:
          runtimeRef: {name: torch, kind: TrainingRuntime, apiGroup: trainer.kubeflow.org}
          suspend: true
          activeDeadlineSeconds: 3600
          managedBy: kueue.x-k8s.io/multikueue
          trainer:
            image: llama:1
            command: [torchrun]
            args: [train.py]
            numNodes: 16
            numProcPerNode: 8
            env:
            - {name: A, value: b}
            - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
            - {name: EMPTY}
            resourcesPerNode:
              requests: {cpu: 1500m}
              limits: {nvidia.com/gpu: 8}
              claims: [{name: gpus}]
          runtimePatches:
          - manager: kueue.x-k8s.io/manager
            trainingRuntimeSpec:
              template:
                spec:
                  replicatedJobs:
                  - name: node
                    template: {spec: {template: {spec: {nodeSelector: {pool: a100}}}}}
        """)
    job = reading.view

    assert reading.findings == ()
    assert isinstance(job, TrainJob)
    assert job.trainer is not None
    assert job.trainer.resources is not None
    assert (job.name, job.namespace, job.labels) == ("llama", "research", {"team": "nlp"})
    assert job.annotations == {"recovery.trainjob.dev/policy": "large"}
    assert (job.runtime.name, job.runtime.kind, job.runtime.api_group) == (
        "torch",
        "TrainingRuntime",
        "trainer.kubeflow.org",
    )
    assert (job.suspended, job.active_deadline_seconds, job.managed_by) == (True, 3600, "kueue.x-k8s.io/multikueue")
    assert (job.trainer.image, job.trainer.command, job.trainer.args) == ("llama:1", ("torchrun",), ("train.py",))
    assert (job.trainer.num_nodes, job.trainer.num_proc_per_node) == (16, 8)
    assert [(each.name, each.value) for each in job.trainer.env] == [("A", "b"), ("NODE", None), ("EMPTY", "")]
    assert [written(each.place.path) for each in job.trainer.env][1] == "spec.trainer.env[1]"
    assert job.trainer.resources.requests == {"cpu": Decimal("1.5")}
    assert job.trainer.resources.limits == {"nvidia.com/gpu": Decimal(8)}
    assert job.trainer.resources.claims == ("gpus",)
    (patch,) = job.patches
    assert (patch.job, patch.manager, patch.pods.node_selector) == ("node", "kueue.x-k8s.io/manager", {"pool": "a100"})


def test_what_is_left_out_stays_out() -> None:
    job = train_job(runtimeRef={"name": "torch"}).view

    assert isinstance(job, TrainJob)
    assert (job.trainer, job.patches, job.suspended, job.active_deadline_seconds) == (None, (), False, None)
    assert (job.runtime.kind, job.runtime.api_group, job.namespace, job.managed_by) == ("", "", "", "")


def test_a_runtime_is_read_down_to_its_containers() -> None:
    reading = read_text("""\
        apiVersion: trainer.kubeflow.org/v1alpha1
        kind: ClusterTrainingRuntime
        metadata: {name: torch, labels: {trainer.kubeflow.org/framework: torch}}
        spec:
          mlPolicy:
            numNodes: 4
            torch:
              envInjection:
                targets:
                - {jobName: node, containerNames: [probe, log]}
          podGroupPolicy: {coscheduling: {}}
          template:
            spec:
              network: {publishNotReadyAddresses: false, enableDNSHostnames: true, subdomain: peers}
              failurePolicy:
                maxRestarts: 3
                restartStrategy: BlockingRecreate
                rules:
                - {name: host, action: RestartJobSet, onJobFailureReasons: [PodFailurePolicy, DeadlineExceeded]}
                - {action: FailJobSet, targetReplicatedJobs: [node], onJobFailureMessagePatterns: [XID]}
              replicatedJobs:
              - name: fetch
                template: {spec: {template: {spec: {}}}}
              - name: node
                replicas: 1
                dependsOn: [{name: fetch, status: Complete}, {name: warm, status: Ready}]
                template:
                  metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
                  spec:
                    parallelism: 2
                    completions: 2
                    backoffLimit: 0
                    backoffLimitPerIndex: 2
                    activeDeadlineSeconds: 60
                    podReplacementPolicy: Failed
                    podFailurePolicy:
                      rules:
                      - {action: FailJob, onExitCodes: {operator: In, values: [42, 43]}}
                      - {action: Ignore, onPodConditions: [{type: DisruptionTarget}, {type: Lost, status: "False"}]}
                    template:
                      metadata: {annotations: {a: b}}
                      spec:
                        restartPolicy: Never
                        terminationGracePeriodSeconds: 15
                        schedulerName: volcano
                        hostNetwork: true
                        priorityClassName: high
                        resourceClaims: [{name: gpus, resourceClaimTemplateName: eight}]
                        tolerations: [{key: k, operator: Exists, effect: NoExecute, tolerationSeconds: 30}]
                        volumes: [{name: data, persistentVolumeClaim: {claimName: data}}, {name: bare}]
                        initContainers: [{name: probe, restartPolicy: Always}]
                        containers:
                        - name: node
                          image: torch:2
                          command: [torchrun]
                          args: [x]
                          terminationMessagePolicy: FallbackToLogsOnError
                          readinessProbe: {exec: {command: [ls]}}
                          volumeMounts: [{name: data, mountPath: /data, readOnly: true}]
        """)
    found = reading.view

    assert reading.findings == ()
    assert isinstance(found, Runtime)
    assert found.ml_policy is not None
    assert found.ml_policy.torch is not None
    assert found.pod_groups is not None
    assert (found.kind, found.name, found.ml_policy.num_nodes) == ("ClusterTrainingRuntime", "torch", 4)
    assert found.ml_policy.torch.env_targets == (("node", "probe"), ("node", "log"))
    assert found.pod_groups.plugin == "coscheduling"
    spec = found.job_set
    assert (spec.publishes_not_ready, spec.dns_hostnames, spec.subdomain) == (False, True, "peers")
    assert spec.failure_policy is not None
    assert (spec.failure_policy.max_restarts, spec.failure_policy.restart_strategy) == (3, "BlockingRecreate")
    assert [(rule.action, rule.matches) for rule in spec.failure_policy.rules] == [
        ("RestartJobSet", "reason PodFailurePolicy, DeadlineExceeded"),
        ("FailJobSet", "message XID; ReplicatedJob node"),
    ]
    assert spec.failure_policy.rules[0].job_reasons == ("PodFailurePolicy", "DeadlineExceeded")
    node = spec.jobs[1]
    assert (node.name, node.ancestor, node.replicas, node.parallelism, node.completions) == ("node", "trainer", 1, 2, 2)
    assert (node.depends_on, node.depends_on_ready) == (("fetch",), ("warm",))
    assert node.backoff_limit_per_index == 2
    assert (node.backoff_limit, node.active_deadline_seconds, node.pod_replacement_policy) == (0, 60, "Failed")
    assert [(rule.action, rule.matches) for rule in node.pod_failure_rules] == [
        ("FailJob", "exit code in 42, 43"),
        ("Ignore", "pod condition DisruptionTarget=True; pod condition Lost=False"),
    ]
    assert (node.pod_failure_rules[0].exit_codes_operator, node.pod_failure_rules[0].exit_codes) == ("In", (42, 43))
    assert node.pod_failure_rules[1].pod_conditions == ("DisruptionTarget",)
    pods = node.pods
    assert written(pods.place.path) == "spec.template.spec.replicatedJobs[1].template.spec.template.spec"
    assert (pods.restart_policy, pods.grace_seconds, pods.scheduler_name) == ("Never", 15, "volcano")
    assert (pods.host_network, pods.priority_class, pods.resource_claims) == (True, "high", ("gpus",))
    assert pods.annotations == {"a": "b"}
    assert [(each.key, each.operator, each.effect, each.seconds) for each in pods.tolerations] == [
        ("k", "Exists", "NoExecute", 30)
    ]
    assert [(each.name, each.source) for each in pods.volumes] == [("data", "persistentVolumeClaim"), ("bare", "")]
    assert [(each.name, each.restart_policy) for each in pods.init_containers] == [("probe", "Always")]
    (container,) = pods.containers
    assert (container.image, container.command, container.args) == ("torch:2", ("torchrun",), ("x",))
    assert (container.termination_message_policy, container.has_readiness_probe) == ("FallbackToLogsOnError", True)
    assert [(each.volume, each.path, each.read_only) for each in container.mounts] == [("data", "/data", True)]
    assert container.resources is None


def test_an_mpi_policy_is_read() -> None:
    found = runtime(mlPolicy={"mpi": {"numProcPerNode": 1, "mpiImplementation": "OpenMPI", "runLauncherAsNode": True}})

    assert isinstance(found.view, Runtime)
    assert found.view.ml_policy is not None
    assert found.view.ml_policy.mpi is not None
    mpi = found.view.ml_policy.mpi
    assert (mpi.num_proc_per_node, mpi.implementation, mpi.run_launcher_as_node) == (1, "OpenMPI", True)


def test_other_frameworks_are_only_named() -> None:
    found = runtime(mlPolicy={"jax": {}})

    assert isinstance(found.view, Runtime)
    assert found.view.ml_policy is not None
    assert (found.view.ml_policy.others, found.view.ml_policy.torch) == (("jax",), None)


def test_a_volcano_job_is_read() -> None:
    reading = read_text("""\
        apiVersion: batch.volcano.sh/v1alpha1
        kind: Job
        metadata: {name: speech, annotations: {a: b}}
        spec:
          minAvailable: 4
          maxRetry: 3
          plugins: {pytorch: ["--master=m"], svc: []}
          policies: [{events: [PodEvicted, PodFailed], action: RestartJob}, {exitCode: 3, action: AbortJob}]
          tasks:
          - name: m
            replicas: 1
            minAvailable: 1
            policies: [{event: TaskCompleted, action: CompleteJob}]
            template: {spec: {containers: [{name: pytorch}]}}
        """)
    job = reading.view

    assert reading.findings == ()
    assert isinstance(job, VolcanoJob)
    assert (job.name, job.min_available, job.max_retry, job.annotations) == ("speech", 4, 3, {"a": "b"})
    assert job.plugins == {"pytorch": ("--master=m",), "svc": ()}
    assert [(policy.action, [*policy.events], policy.exit_code) for policy in job.policies] == [
        ("RestartJob", ["PodEvicted", "PodFailed"], None),
        ("AbortJob", [], 3),
    ]
    (task,) = job.tasks
    assert (task.name, task.replicas, task.min_available, [*task.policies[0].events]) == ("m", 1, 1, ["TaskCompleted"])
    assert [each.name for each in task.pods.containers] == ["pytorch"]


def test_a_job_set_is_read() -> None:
    body = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"generateName": "vision-"}}
    reading = read(document_of(body | {"spec": {"suspend": True, "replicatedJobs": [{"name": "worker"}]}}))

    assert isinstance(reading.view, JobSet)
    assert (reading.view.name, reading.view.spec.suspended) == ("vision-xxxxx", True)
    assert ([job.name for job in reading.view.spec.jobs], reading.findings) == (["worker"], ())


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        ({"trainer": {"numNodes": 0}}, "trainer.numNodes", "is 0, and it has to be at least 1"),
        ({"trainer": {"numNodes": -2}}, "trainer.numNodes", "is -2, and it has to be at least 1"),
        ({"trainer": {"numNodes": 100_001}}, "trainer.numNodes", "is 100001, and it has to be at most 100,000"),
        ({"trainer": {"numProcPerNode": 0}}, "trainer.numProcPerNode", "is 0, and it has to be at least 1"),
        ({"activeDeadlineSeconds": 0}, "activeDeadlineSeconds", "is 0, and it has to be at least 1"),
    ],
)
def test_a_number_that_a_train_job_cannot_have(spec: dict[str, Any], field: str, message: str) -> None:
    (finding,) = train_job(runtimeRef={"name": "torch"}, **spec).findings

    assert (finding.code.name, written(finding.place.path)) == ("bad-number", f"spec.{field}")
    assert finding.message == f"spec.{field} {message}"


def replicated_job(**fields: Any) -> dict[str, Any]:
    return {"template": {"spec": {"replicatedJobs": [{"name": "node", **fields}]}}}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"mlPolicy": {"numNodes": 0}}, "mlPolicy.numNodes"),
        ({"mlPolicy": {"mpi": {"numProcPerNode": 0}}}, "mlPolicy.mpi.numProcPerNode"),
        (replicated_job(replicas=-1), "template.spec.replicatedJobs[0].replicas"),
        (
            replicated_job(template={"spec": {"backoffLimit": -1}}),
            "template.spec.replicatedJobs[0].template.spec.backoffLimit",
        ),
        (
            replicated_job(template={"spec": {"parallelism": 100_001}}),
            "template.spec.replicatedJobs[0].template.spec.parallelism",
        ),
        (
            replicated_job(replicas=400, template={"spec": {"parallelism": 400}}),
            "template.spec.replicatedJobs[0].template.spec.parallelism",
        ),
    ],
)
def test_a_number_that_a_runtime_cannot_have(spec: dict[str, Any], field: str) -> None:
    assert told(runtime(**spec)) == [("bad-number", f"spec.{field}")]


def test_a_word_for_the_processes_is_left_to_the_runtime() -> None:
    reading = train_job(runtimeRef={"name": "torch"}, trainer={"numProcPerNode": "auto"})

    assert isinstance(reading.view, TrainJob)
    assert reading.view.trainer is not None
    assert (reading.view.trainer.num_proc_per_node, reading.findings) == ("auto", ())


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"runtimeRef": {"name": "torch"}, "traner": {}}, "spec.traner"),
        ({"runtimeRef": {"name": "torch", "version": 1}}, "spec.runtimeRef.version"),
        ({"runtimeRef": {"name": "torch"}, "trainer": {"replicas": 2}}, "spec.trainer.replicas"),
    ],
)
def test_a_field_that_a_train_job_does_not_have(spec: dict[str, Any], field: str) -> None:
    assert told(train_job(**spec)) == [("unknown-field", field)]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"policy": {}}, "spec.policy"),
        ({"mlPolicy": {"pytorch": {}}}, "spec.mlPolicy.pytorch"),
        ({"mlPolicy": {"torch": {"backend": "nccl"}}}, "spec.mlPolicy.torch.backend"),
        ({"mlPolicy": {"mpi": {"slots": 8}}}, "spec.mlPolicy.mpi.slots"),
    ],
)
def test_a_field_that_a_runtime_does_not_have(spec: dict[str, Any], field: str) -> None:
    assert told(runtime(**spec)) == [("unknown-field", field)]


@pytest.mark.parametrize(
    ("kind", "api_version", "known"),
    [
        ("TrainJob", "trainer.kubeflow.org/v1", "trainer.kubeflow.org/v1alpha1"),
        ("TrainJob", "kubeflow.org/v1", "trainer.kubeflow.org/v1alpha1"),
        ("JobSet", "jobset.x-k8s.io/v1", "jobset.x-k8s.io/v1alpha2"),
        ("Job", "batch.volcano.sh/v1", "batch.volcano.sh/v1alpha1"),
        ("RecoveryPolicy", "recovery.trainjob.dev/v1", "recovery.trainjob.dev/v1alpha1"),
    ],
)
def test_a_known_kind_of_another_api_version_is_an_error(kind: str, api_version: str, known: str) -> None:
    reading = read(document_of({"kind": kind, "apiVersion": api_version}))

    assert (reading.view, told(reading)) == (None, [("wrong-api-version", "apiVersion")])
    assert reading.findings[0].code.severity is Severity.ERROR
    assert reading.findings[0].fix == f"write apiVersion: {known}"


@pytest.mark.parametrize(
    ("kind", "api_version"), [("Job", "batch/v1"), ("RecoveryGroup", "recovery.trainjob.dev/v1alpha1")]
)
def test_what_is_not_judged_is_told(kind: str, api_version: str) -> None:
    reading = read(document_of({"kind": kind, "apiVersion": api_version}))

    assert (reading.view, told(reading)) == (None, [("unknown-kind", "kind")])


@pytest.mark.parametrize("kind", ["RecoveryPolicy", "ClusterRecoveryPolicy", "RecoveryConfig"])
def test_our_own_kinds_start_nothing(kind: str) -> None:
    about = {"kind": kind, "apiVersion": "recovery.trainjob.dev/v1alpha1"}

    assert read(document_of({**about, "metadata": {"name": "default"}})) == Reading(None, ())
    assert told(read(document_of(about))) == [("missing-field", "")]


def test_a_pytorch_job_is_old() -> None:
    reading = read(document_of({"kind": "PyTorchJob", "apiVersion": "kubeflow.org/v1", "metadata": {"name": "a"}}))

    assert isinstance(reading.view, PyTorchJob)
    assert told(reading) == [("old-api", "apiVersion")]


def test_what_is_wrong_with_the_text_is_told_first() -> None:
    (document,) = documents(f"apiVersion: {TRAINER}\nkind: TrainJob\nspec: 1\nspec: 2\n")

    assert next(finding.code.name for finding in read(document).findings) == "duplicate-key"


@pytest.mark.parametrize("wrong", [1, "x", True, [], ["x"], {}, {"x": {}}, [[]], [None]])
@pytest.mark.parametrize(
    "path",
    [
        ("metadata",),
        ("metadata", "labels"),
        ("spec",),
        ("spec", "trainer"),
        ("spec", "trainer", "env"),
        ("spec", "trainer", "resourcesPerNode"),
        ("spec", "trainer", "resourcesPerNode", "limits"),
        ("spec", "runtimePatches"),
        ("spec", "runtimeRef"),
    ],
)
def test_no_content_of_a_field_raises(path: tuple[str, ...], wrong: object) -> None:
    body: dict[str, Any] = {"apiVersion": TRAINER, "kind": "TrainJob"}
    at = body
    for step in path[:-1]:
        at = at.setdefault(step, {})
    at[path[-1]] = wrong

    assert isinstance(read(document_of(body)).view, TrainJob)
