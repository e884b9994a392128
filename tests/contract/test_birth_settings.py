"""Settings at birth: how they change the Jobs that JobSet creates for a group whose RecoveryGroup has settings.

On the real control plane the shipped admission policy applies them; in the simulation its model does.
"""

from datetime import UTC, datetime
from typing import Any

import msgspec

from recovery import api_verbs
from recovery.core.model.annotations import (
    BIRTH_SETTINGS_ANNOTATION,
    BIRTH_SETTINGS_LABEL,
    BIRTH_SETTINGS_LABELLED,
    NODES_ANNOTATION,
)
from recovery.core.model.birth_settings import BirthOutcome, BirthSettings, BirthTrial
from recovery.core.model.facts import GroupKey, WorkloadFacts
from recovery.core.model.ledger import SCHEMA_VERSION, Ledger
from recovery.core.model.ledger_object import LedgerObject
from recovery.core.plan.actions import TryBirth
from recovery.executors.birth_settings import try_birth
from recovery.executors.status import LedgerWriter
from recovery.kube.live_reader import LiveReader
from recovery.ports import JOB_SETS, JOBS, PODS, RECOVERY_GROUPS, ConflictError, Propagation
from tests.contract.bodies import job_set, job_spec, recovery_group
from tests.contract.expectations import expectation
from tests.contract.scene import Object, Scene, Story, ready, refused, uid, uids
from tests.contract.workload import DEAF

SINCE = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
HOSTS = ("common-0", "common-1")
EXCLUSION = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": list(HOSTS)}
ARCH = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}
OTHER_ARCH = {"key": "kubernetes.io/arch", "operator": "In", "values": ["s390x"]}
SEEN_SECONDS = 20.0
"""How long an API server may take to see the policy, and a RecoveryGroup."""


def settings_for(made: Object, revision: int = 1, **fields: Any) -> BirthSettings:
    """Settings for the ReplicatedJob `node` of that JobSet."""
    return BirthSettings(revision, **{"job_set_uid": uid(made), "replicated_job": "node", "since": SINCE, **fields})


async def enter(scene: Scene, settings: BirthSettings | None, name: str = "llm", *, labelled: bool = True) -> None:
    """A RecoveryGroup with these settings. It has no owner, so it is not garbage-collected."""
    if not any(each["metadata"]["name"] == name for each in await scene.items(RECOVERY_GROUPS)):
        body = recovery_group(name)
        body["metadata"]["labels"] = {BIRTH_SETTINGS_LABEL: BIRTH_SETTINGS_LABELLED} if labelled else {}
        await scene.create(RECOVERY_GROUPS, body)
    status = {"schemaVersion": SCHEMA_VERSION, "birthSettings": msgspec.to_builtins(settings)}
    await scene.patch(RECOVERY_GROUPS, name, {"status": status}, subresource="status")


async def tried(scene: Scene, settings: BirthSettings, job_set_name: str = "llm") -> BirthTrial:
    """A dry run, once the API server has seen the settings. After some seconds the last one is returned in any case."""
    for _ in range(int(SEEN_SECONDS / 0.1)):
        found = await try_birth(scene.api, scene.namespace, TryBirth(job_set_name, settings))
        if found.outcome is not BirthOutcome.NOT_APPLIED:
            break
        await scene.pass_seconds(0.1)
    return found


async def apply(scene: Scene, settings: BirthSettings, job_set_name: str = "llm") -> None:
    """Enter the settings and wait until a dry run shows them."""
    await enter(scene, settings)
    assert (await tried(scene, settings, job_set_name)).outcome is BirthOutcome.APPLIED


async def restart(scene: Scene, jobs: Story, name: str = "llm-node-0") -> Object:
    """Delete the child Job as the controller does, and return the next one."""
    old = jobs.named(name)
    assert old is not None
    await api_verbs.delete(
        scene.api, JOBS, name, namespace=scene.namespace, uid=uid(old), propagation=Propagation.FOREGROUND
    )
    await scene.until(f"Job {name} is made anew", lambda: uid(jobs.named(name) or old) != uid(old))
    return jobs.named(name) or old


def told_size(count: int, **pod: Any) -> Object:
    """A Job spec as Trainer writes it: one container has the size in its environment, the one beside it does not."""
    spec = job_spec(count, pod=pod)
    template: Object = spec["template"]["spec"]
    node: Object = template["containers"][0]
    node["env"] = [{"name": "FIRST", "value": "1"}, {"name": "PET_NNODES", "value": str(count)}]
    template["containers"].append({"name": "beside", "image": "obedient", "env": [{"name": "OTHER", "value": "4"}]})
    return spec


def size_of(job: Object) -> tuple[int, int]:
    return job["spec"]["parallelism"], job["spec"]["completions"]


def ours(body: Object) -> dict[str, str]:
    """Our annotations on a Job or a template."""
    annotations = body["metadata"].get("annotations", {})
    return {key: annotations[key] for key in (BIRTH_SETTINGS_ANNOTATION, NODES_ANNOTATION) if key in annotations}


def but_for_size(job: Object) -> Object:
    """The parts of the pod template that depend neither on settings nor on which Job it is."""
    template = job["spec"]["template"]
    spec = {key: value for key, value in template["spec"].items() if key not in {"containers", "affinity"}}
    containers = [
        {key: value for key, value in each.items() if key != "env"} for each in template["spec"]["containers"]
    ]
    return {**spec, "containers": containers}


async def trains(scene: Scene, spec: Object, count: int, **fields: Any) -> tuple[Object, Story, Story]:
    """A JobSet `llm` whose pods run, its Jobs and its pods."""
    jobs, pods = await scene.follow(JOBS), await scene.follow(PODS)
    made = await scene.create(JOB_SETS, job_set("llm", {"node": spec}, **fields))
    await scene.running(pods, count)
    return made, jobs, pods


@expectation
async def test_a_job_is_born_with_its_size_until_the_settings_are_withdrawn(scene: Scene) -> None:
    made, jobs, pods = await trains(scene, told_size(4), 4)
    first, before = jobs.named("llm-node-0") or {}, ready(pods)
    assert ours(first) == {}
    await apply(scene, settings_for(made, 3, nodes=3))
    small = await restart(scene, jobs)
    after = await scene.others_run(pods, 3, *before)
    assert size_of(small) == (3, 3)
    assert ours(small) == {BIRTH_SETTINGS_ANNOTATION: "3", NODES_ANNOTATION: "3"}
    assert ours(small["spec"]["template"]) == {NODES_ANNOTATION: "3"}
    node, beside = small["spec"]["template"]["spec"]["containers"]
    assert node["env"] == [{"name": "FIRST", "value": "1"}, {"name": "PET_NNODES", "value": "3"}]
    assert beside["env"] == [{"name": "OTHER", "value": "4"}]
    assert but_for_size(small) == but_for_size(first)
    assert {pod["metadata"]["annotations"][NODES_ANNOTATION] for pod in after} == {"3"}
    made_for_it = {
        event.uid
        for event in pods.events
        if any(owner["uid"] == uid(small) for owner in event.object["metadata"].get("ownerReferences", ()))
    }
    assert len(made_for_it) == 3, "no index beyond the size ever had a pod"
    await enter(scene, None)
    await scene.pass_seconds(1)
    whole = await restart(scene, jobs)
    await scene.others_run(pods, 4, *after)
    assert (size_of(whole), ours(whole), ours(whole["spec"]["template"])) == ((4, 4), {}, {})


@expectation
async def test_whoever_restarts_the_group_it_has_the_size(scene: Scene) -> None:
    spec = {**told_size(4), "backoffLimit": 0}
    del spec["template"]["spec"]["containers"][1]  # a pod ends only when its last container has ended
    made, jobs, pods = await trains(scene, spec, 4, failurePolicy={"maxRestarts": 1})
    before = ready(pods)
    await apply(scene, settings_for(made, nodes=2))
    scene.exit(before[0], 1)
    second = await scene.others_run(pods, 2, *before)
    assert size_of(jobs.named("llm-node-0") or {}) == (2, 2)
    await scene.patch(JOB_SETS, "llm", {"spec": {"suspend": True}})
    await scene.until("no pod is left", lambda: not pods.present)
    await scene.patch(JOB_SETS, "llm", {"spec": {"suspend": False}})
    await scene.others_run(pods, 2, *second)
    job = jobs.named("llm-node-0") or {}
    assert (size_of(job), ours(job["spec"]["template"])) == ((2, 2), {NODES_ANNOTATION: "2"})


@expectation
async def test_its_pods_avoid_hosts_where_the_template_has_no_affinity(scene: Scene) -> None:
    made, jobs, pods = await trains(scene, told_size(4), 4)
    before = ready(pods)
    await apply(scene, settings_for(made, avoid_hosts=HOSTS))
    job = await restart(scene, jobs)
    after = await scene.others_run(pods, 4, *before)
    assert {pod["spec"]["nodeName"] for pod in after} <= {"common-2", "common-3"}
    assert (size_of(job), ours(job), ours(job["spec"]["template"])) == ((4, 4), {BIRTH_SETTINGS_ANNOTATION: "1"}, {})
    assert job["spec"]["template"]["spec"]["containers"][0]["env"][1] == {"name": "PET_NNODES", "value": "4"}


@expectation
async def test_its_pods_avoid_hosts_whichever_of_the_templates_terms_they_meet(scene: Scene) -> None:
    spec = told_size(2)
    hosts = [{"key": "kubernetes.io/hostname", "operator": "In", "values": [name]} for name in ("common-1", "common-2")]
    terms = [{"matchExpressions": [host]} for host in hosts]
    spec["template"]["spec"]["affinity"] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
    made, jobs, pods = await trains(scene, spec, 2)
    before = ready(pods)
    await apply(scene, settings_for(made, avoid_hosts=HOSTS))
    job = await restart(scene, jobs)
    after = await scene.others_run(pods, 2, *before)
    assert {pod["spec"]["nodeName"] for pod in after} == {"common-2"}
    found = job["spec"]["template"]["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert found == [{"matchExpressions": [host, EXCLUSION]} for host in hosts]


def as_job_set_makes_it(made: Object, affinity: Object | None) -> Object:
    """A Job of that JobSet, for a dry run under another name."""
    marks = {
        "jobset.sigs.k8s.io/jobset-name": made["metadata"]["name"],
        "jobset.sigs.k8s.io/jobset-uid": uid(made),
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
    }
    spec = job_spec(2)
    if affinity is not None:
        spec["template"]["spec"]["affinity"] = affinity
    spec["template"]["metadata"] = {"labels": marks, "annotations": marks}
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {"name": "trial", "labels": marks, "annotations": marks},
        "spec": spec,
    }


def terms(*terms: Object) -> Object:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}


PREFERRED = {
    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {"matchExpressions": [ARCH]}}]
}
APART = {
    "podAntiAffinity": {
        REQUIRED: [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"apart": "yes"}}}]
    }
}
BY_NAME = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["common-2"]}]}
AFFINITIES: tuple[tuple[Object | None, Object], ...] = (
    (None, terms({"matchExpressions": [EXCLUSION]})),
    ({}, terms({"matchExpressions": [EXCLUSION]})),
    (APART, {**APART, **terms({"matchExpressions": [EXCLUSION]})}),
    ({"nodeAffinity": {}}, terms({"matchExpressions": [EXCLUSION]})),
    (
        {"nodeAffinity": PREFERRED},
        {"nodeAffinity": {**PREFERRED, REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [EXCLUSION]}]}}},
    ),
    (
        terms({"matchExpressions": [ARCH]}, BY_NAME, {}),
        terms({"matchExpressions": [ARCH, EXCLUSION]}, {**BY_NAME, "matchExpressions": [EXCLUSION]}, {}),
    ),
    (
        terms({"matchExpressions": [EXCLUSION]}, {"matchExpressions": [OTHER_ARCH]}),
        terms({"matchExpressions": [EXCLUSION]}, {"matchExpressions": [OTHER_ARCH, EXCLUSION]}),
    ),
)
"""A template's affinity, and the one that the Job gets."""


@expectation
async def test_hosts_are_excluded_from_every_shape_of_affinity_and_all_else_of_it_stays(scene: Scene) -> None:
    made, _, _ = await trains(scene, told_size(2), 2)
    await apply(scene, settings_for(made, avoid_hosts=HOSTS))
    for affinity, expected in AFFINITIES:
        body = as_job_set_makes_it(made, affinity)
        answer = await api_verbs.create(scene.api, JOBS, body, namespace=scene.namespace, dry_run=True)
        assert msgspec.json.decode(answer)["spec"]["template"]["spec"]["affinity"] == expected


@expectation
async def test_settings_of_others_and_those_without_the_label_change_nothing(scene: Scene) -> None:
    made, jobs, pods = await trains(scene, told_size(2), 2)
    before = ready(pods)
    another = await scene.create(JOB_SETS, job_set("other", {"node": told_size(1)}))
    await enter(scene, settings_for(made, nodes=1), "unlabelled", labelled=False)
    await enter(scene, None, "without-settings")
    await enter(scene, settings_for(made, nodes=1, job_set_uid="0b5e1a52-7f0a-4a5c-9d6e-00000000000a"), "of-another")
    await enter(scene, settings_for(made, nodes=1, replicated_job="launcher"), "of-another-replicated-job")
    # These are written after the others, so once they are seen, the others are seen too.
    theirs = settings_for(another, nodes=2)
    await apply(scene, theirs, "other")
    job = await restart(scene, jobs)
    await scene.until("the group runs again", lambda: len(ready(pods)) == 3 and not uids(ready(pods)) & uids(before))
    assert (size_of(job), ours(job), ours(job["spec"]["template"])) == ((2, 2), {}, {})
    await scene.create(JOBS, {"metadata": {"name": "of-no-job-set"}, "spec": job_spec(2)})
    assert size_of(await scene.read(JOBS, "of-no-job-set")) == (2, 2)


@expectation
async def test_a_job_set_that_was_made_again_under_its_name_is_another_one(scene: Scene) -> None:
    made, jobs, pods = await trains(scene, told_size(2), 2)
    settings = settings_for(made, nodes=1)
    await apply(scene, settings)
    await api_verbs.delete(
        scene.api, JOB_SETS, "llm", namespace=scene.namespace, uid=uid(made), propagation=Propagation.FOREGROUND
    )
    await scene.until("its Job is gone", lambda: not jobs.present and not pods.present)
    while any(each["metadata"]["name"] == "llm" for each in await scene.items(JOB_SETS)):
        await scene.pass_seconds(0.1)
    with refused(ConflictError):
        await stale_trial(scene, settings)
    await scene.running(pods, 2)
    assert ours(jobs.named("llm-node-0") or {}) == {}


async def stale_trial(scene: Scene, settings: BirthSettings) -> None:
    """A dry run for a new JobSet, with settings made for the one before it."""
    await scene.create(JOB_SETS, job_set("llm", {"node": told_size(2)}))
    await try_birth(scene.api, scene.namespace, TryBirth("llm", settings))


@expectation
async def test_a_dry_run_leaves_nothing(scene: Scene) -> None:
    made, jobs, pods = await trains(scene, told_size(2, image=DEAF), 2)
    before = uids(pods.present.values())
    await apply(scene, settings_for(made, nodes=1))
    body = as_job_set_makes_it(made, None)
    for _ in range(2):
        answer = await api_verbs.create(scene.api, JOBS, body, namespace=scene.namespace, dry_run=True)
        tried_job: Object = msgspec.json.decode(answer)
        assert size_of(tried_job) == (1, 1)
        assert "resourceVersion" not in tried_job["metadata"]
    await scene.pass_seconds(1)
    assert [event.type for event in jobs.events if event.name != "llm-node-0"] == []
    assert uids(pods.present.values()) == before


INVALID: tuple[tuple[Object, str], ...] = (
    ({"successPolicy": {"rules": [{"succeededIndexes": "0-3"}]}}, 'too large index: "3"'),
    ({"successPolicy": {"rules": [{"succeededCount": 4}]}}, "must be less than or equal to 3"),
    ({"backoffLimitPerIndex": 1, "maxFailedIndexes": 4}, "must be less than or equal to completions"),
)
"""Fields that are valid for four pods and invalid for three, with the API server's message."""


@expectation
async def test_a_dry_run_shows_what_makes_the_job_invalid(scene: Scene) -> None:
    for number, (fields, message) in enumerate(INVALID):
        name = f"llm-{number}"
        made = await scene.create(JOB_SETS, job_set(name, {"node": {**told_size(4), **fields}}, suspend=True))
        settings = settings_for(made, nodes=3)
        await enter(scene, settings, name)
        trial = await tried(scene, settings, name)
        assert (trial.outcome, message in trial.message) == (BirthOutcome.REFUSED, True), trial.message


@expectation
async def test_a_job_that_its_settings_make_invalid_is_not_created_until_they_are_withdrawn(scene: Scene) -> None:
    """JobSet says so in an Event, and tries again; a touch of the JobSet has it try at once."""
    made, jobs, pods = await trains(scene, {**told_size(4), **INVALID[0][0]}, 4)
    before, old = ready(pods), jobs.named("llm-node-0") or {}
    reader, key = LiveReader(scene.api), GroupKey(scene.namespace, "llm")
    settings = settings_for(made, nodes=3)
    await enter(scene, settings)
    assert (await tried(scene, settings)).outcome is BirthOutcome.REFUSED
    await api_verbs.delete(
        scene.api, JOBS, "llm-node-0", namespace=scene.namespace, uid=uid(old), propagation=Propagation.FOREGROUND
    )
    await scene.until("the Job is gone", lambda: not jobs.present)
    told = ""
    for _ in range(100):
        parts = await reader.parts(key)
        assert parts.jobset is not None
        assert not parts.jobs
        told = parts.jobset.facts.failed_create
        if told:
            break
        await scene.pass_seconds(0.1)
    assert told.startswith('job "llm-node-0" creation failed with error: ')
    assert INVALID[0][1] in told
    await scene.pass_seconds(3)
    assert not jobs.present
    await enter(scene, None)
    await scene.pass_seconds(1)
    await scene.patch(JOB_SETS, "llm", {"metadata": {"annotations": {"touched": "1"}}})
    await scene.others_run(pods, 4, *before)
    parts = await reader.parts(key)
    assert parts.jobset is not None
    assert (parts.jobset.facts.failed_create, len(parts.jobs)) == ("", 1)


@expectation
async def test_the_label_is_there_as_long_as_the_ledger_has_settings(scene: Scene) -> None:
    made, _, _ = await trains(scene, told_size(2), 2)
    metadata = made["metadata"]
    at = datetime.fromisoformat(metadata["creationTimestamp"])
    workload = WorkloadFacts(JOB_SETS.kind, "llm", uid(made), metadata["resourceVersion"], metadata["generation"], at)
    writer = LedgerWriter(scene.api)

    async def write(known: LedgerObject | None, settings: BirthSettings | None, epoch: int) -> LedgerObject:
        written = await writer.write(scene.namespace, workload, known, Ledger(epoch=epoch, birth_settings=settings))
        found = await LiveReader(scene.api).ledger(GroupKey(scene.namespace, "llm"), uid(made))
        assert found is not None
        assert (found.labelled, found.resource_version) == (settings is not None, written.resource_version)
        assert written.labelled == found.labelled
        return written

    first = await write(None, settings_for(made, nodes=1), 1)
    assert (await tried(scene, settings_for(made, nodes=1))).outcome is BirthOutcome.APPLIED
    second = await write(first, settings_for(made, 2, nodes=1), 2)
    third = await write(second, None, 3)
    fourth = await write(third, None, 4)
    fifth = await write(fourth, settings_for(made, 3, avoid_hosts=HOSTS), 5)
    assert (await tried(scene, settings_for(made, 3, avoid_hosts=HOSTS))).outcome is BirthOutcome.APPLIED
    with refused(ConflictError):
        await writer.write(scene.namespace, workload, fourth, Ledger(epoch=6, birth_settings=None))
    stale = msgspec.structs.replace(fourth, labelled=False)
    with refused(ConflictError):
        await writer.write(
            scene.namespace, workload, stale, Ledger(epoch=6, birth_settings=fifth.ledger.birth_settings)
        )
