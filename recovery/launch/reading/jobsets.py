"""JobSets, by themselves and as the template of a runtime."""

from recovery.launch.fields import Field
from recovery.launch.places import written
from recovery.launch.reading.numbers import BAD_NUMBER, PODS_MAX, number, pods
from recovery.launch.reading.objects import annotations_of, labels_of, name_of, namespace_of
from recovery.launch.reading.pods import pod_template
from recovery.launch.views import FailurePolicy, JobSet, JobSetSpec, NativeRule, ReplicatedJob

ANCESTOR_LABEL = "trainer.kubeflow.org/trainjob-ancestor-step"
"""On a runtime's Job template: the step of the TrainJob that it is (Trainer pkg/constants, LabelTrainJobAncestor)."""

DEPENDENCY_COMPLETE = "Complete"
DEPENDENCY_READY = "Ready"
"""`dependsOn[].status`: the state of the other ReplicatedJob that this one waits for."""


def job_set(body: Field) -> JobSet:
    """A document of kind JobSet."""
    return JobSet(
        name=name_of(body),
        place=body.place,
        spec=job_set_spec(body["spec"]),
        namespace=namespace_of(body),
        labels=labels_of(body["metadata"]),
        annotations=annotations_of(body["metadata"]),
    )


def job_set_spec(spec: Field) -> JobSetSpec:
    network = spec["network"]
    return JobSetSpec(
        place=spec.place,
        jobs=tuple(_replicated_job(each) for each in spec["replicatedJobs"].items()),
        failure_policy=_failure_policy(spec["failurePolicy"]) if spec["failurePolicy"].there else None,
        suspended=bool(spec["suspend"].flag()),
        publishes_not_ready=network["publishNotReadyAddresses"].flag(),
        dns_hostnames=network["enableDNSHostnames"].flag(),
        subdomain=network["subdomain"].text(),
        ttl_seconds=number(spec["ttlSecondsAfterFinished"]),
        success_jobs=spec["successPolicy"]["targetReplicatedJobs"].texts(),
    )


def _replicated_job(field: Field) -> ReplicatedJob:
    template = field["template"]
    job = template["spec"]
    depends_on = tuple((each["status"].text(), each["name"].text()) for each in field["dependsOn"].items())
    read = ReplicatedJob(
        name=field["name"].text(),
        place=field.place,
        pods=pod_template(job["template"]),
        replicas=pods(field["replicas"], least=0),
        ancestor=labels_of(template["metadata"]).get(ANCESTOR_LABEL, ""),
        depends_on=tuple(name for status, name in depends_on if status == DEPENDENCY_COMPLETE),
        depends_on_ready=tuple(name for status, name in depends_on if status == DEPENDENCY_READY),
        parallelism=pods(job["parallelism"], least=0),
        completions=pods(job["completions"], least=0),
        backoff_limit=number(job["backoffLimit"]),
        backoff_limit_per_index=number(job["backoffLimitPerIndex"]),
        active_deadline_seconds=number(job["activeDeadlineSeconds"], most=2**63 - 1),
        ttl_seconds=number(job["ttlSecondsAfterFinished"]),
        pod_replacement_policy=job["podReplacementPolicy"].text(),
        pod_failure_rules=tuple(_pod_failure_rule(each) for each in job["podFailurePolicy"]["rules"].items()),
    )
    whole = (1 if read.replicas is None else read.replicas) * (1 if read.parallelism is None else read.parallelism)
    if whole > PODS_MAX:
        parallelism = job["parallelism"]
        parallelism.finding(
            BAD_NUMBER,
            f"replicas times {written(parallelism.place.path)} makes {whole:,} pods, and no group has so many",
            f"ask for at most {PODS_MAX:,} pods in all",
        )
    return read


def _failure_policy(field: Field) -> FailurePolicy:
    return FailurePolicy(
        place=field.place,
        max_restarts=number(field["maxRestarts"]),
        restart_strategy=field["restartStrategy"].text(),
        rules=tuple(_failure_rule(each) for each in field["rules"].items()),
    )


def _failure_rule(field: Field) -> NativeRule:
    """A rule of a JobSet's failurePolicy, and which Job failures it matches."""
    reasons = field["onJobFailureReasons"].texts()
    parts = (
        ("reason", reasons),
        ("message", field["onJobFailureMessagePatterns"].texts()),
        ("ReplicatedJob", field["targetReplicatedJobs"].texts()),
    )
    matches = "; ".join(f"{name} {', '.join(values)}" for name, values in parts if values)
    return NativeRule(field["action"].text(), field.place, matches, job_reasons=reasons)


def _pod_failure_rule(field: Field) -> NativeRule:
    """A rule of a Job's podFailurePolicy, and which pod failures it matches."""
    codes = field["onExitCodes"]
    values = tuple(code for code in (each.whole() for each in codes["values"].items()) if code is not None)
    operator = codes["operator"].text()
    conditions = [(each["type"].text(), each["status"].text("True")) for each in field["onPodConditions"].items()]
    parts = [f"pod condition {name}={status}" for name, status in conditions]
    if codes.there:
        parts.append(f"exit code {'not in' if operator == 'NotIn' else 'in'} {', '.join(map(str, values))}")
    return NativeRule(
        field["action"].text(),
        field.place,
        "; ".join(parts),
        exit_codes=values,
        exit_codes_operator=operator,
        pod_conditions=tuple(name for name, status in conditions if status == "True"),
    )
