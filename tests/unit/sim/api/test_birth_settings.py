"""The modelled admission policy matches the shipped one, sees RecoveryGroups a moment late, and can be removed.

`tests/contract` checks what it does to Jobs, where a real API server does the same.
"""

import random
from typing import Any

import pytest

from recovery.core.model.ledger import SCHEMA_VERSION
from recovery.ports import JOBS, RECOVERY_GROUPS, PatchKind
from recovery.sim.api import birth_settings
from recovery.sim.api.birth_settings import (
    FOLLOWED,
    WATCH_SECONDS,
    BirthSettingsPolicy,
    UnknownPolicyError,
    check_shipped_policy,
    hash_of,
    shipped_policy,
)
from recovery.sim.api.kinds.jobs import job_kind
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.kinds.recovery import recovery_kinds
from recovery.sim.api.server import ApiServer
from recovery.sim.virtual_time import VirtualClock, virtual_time

LABEL = {"recovery.trainjob.dev/birth-settings": "true"}
PREFIX = "jobset.sigs.k8s.io/"


class Place:
    """A server with the policy, and one RecoveryGroup for the JobSet of UID `set-1`."""

    def __init__(self, *, installed: bool = True) -> None:
        self.clock = VirtualClock()
        kinds = (job_kind(), *recovery_kinds())
        self.server = ApiServer(kinds, clock=self.clock, entropy=random.Random(1))
        self.policy = BirthSettingsPolicy(self.server, self.clock, installed=installed)

    def enter(self, settings: Body | None, *, namespace: str = "ml", labels: dict[str, str] | None = None) -> None:
        if self.server.find(RECOVERY_GROUPS, "llm", namespace) is None:
            reference = {"kind": "TrainJob", "name": "llm", "uid": "0b5e1a52-7f0a-4a5c-9d6e-000000000001"}
            metadata = {"name": "llm", "labels": LABEL if labels is None else labels}
            spec = {"workloadRef": reference, "group": "llm"}
            self.server.create(RECOVERY_GROUPS, {"metadata": metadata, "spec": spec}, namespace=namespace)
        status = {"status": {"schemaVersion": SCHEMA_VERSION, "birthSettings": settings}}
        self.server.patch(
            RECOVERY_GROUPS, "llm", status, kind=PatchKind.MERGE, namespace=namespace, subresource="status"
        )

    async def seen(self) -> None:
        await self.clock.sleep(WATCH_SECONDS)

    def size(self, **marks: str) -> tuple[int, str]:
        """The size of a Job that would be created now, and the settings revision that it would carry."""
        made = self.server.create(JOBS, job(**marks), namespace="ml", dry_run=True)
        annotations = made["metadata"]["annotations"]
        return made["spec"]["parallelism"], annotations.get("recovery.trainjob.dev/birth-settings", "")


def settings(**fields: Any) -> Body:
    since = "2026-11-21T12:00:00Z"
    return {"revision": 1, "jobSetUID": "set-1", "replicatedJob": "node", "since": since, "nodes": 3, **fields}


def job(**marks: str) -> Body:
    """A Job as JobSet makes it; `marks` replace its own labels."""
    own = {"jobset_name": "llm", "jobset_uid": "set-1", "replicatedjob_name": "node", **marks}
    labels = {PREFIX + name.replace("_", "-"): value for name, value in own.items()}
    pods = {"restartPolicy": "Never", "containers": [{"name": "node", "image": "torch"}]}
    template = {"metadata": {"labels": labels, "annotations": {}}, "spec": pods}
    spec = {"parallelism": 4, "completions": 4, "completionMode": "Indexed", "template": template}
    return {"metadata": {"name": "llm-node-0", "labels": labels, "annotations": {"a": "b"}}, "spec": spec}


def test_the_shipped_policy_is_the_one_that_is_modelled() -> None:
    assert hash_of(shipped_policy().read_text(encoding="utf-8")) == FOLLOWED


@pytest.mark.parametrize(
    ("said", "instead"),
    [("failurePolicy: Ignore", "failurePolicy: Fail"), ("'PET_NNODES'", "'NNODES'"), ("Exists}", "DoesNotExist}")],
)
def test_any_other_is_refused(monkeypatch: pytest.MonkeyPatch, said: str, instead: str) -> None:
    text = shipped_policy().read_text(encoding="utf-8")
    assert said in text

    class Changed:
        def read_text(self, encoding: str) -> str:
            return text.replace(said, instead, 1)

    monkeypatch.setattr(birth_settings, "shipped_policy", Changed)
    check_shipped_policy.cache_clear()
    try:
        with pytest.raises(UnknownPolicyError, match="set FOLLOWED to"):
            Place()
        Place(installed=False)
    finally:
        check_shipped_policy.cache_clear()


def test_but_not_for_its_comments() -> None:
    text = shipped_policy().read_text(encoding="utf-8")
    assert hash_of("# more\n" + text) == FOLLOWED


@virtual_time
async def test_it_sees_a_recovery_group_a_moment_after_it_was_written() -> None:
    place = Place()
    place.enter(settings())
    assert place.size() == (4, "")
    await place.seen()
    assert place.size() == (3, "1")
    place.enter(settings(revision=2, nodes=2))
    assert place.size() == (3, "1")
    await place.seen()
    assert place.size() == (2, "2")
    place.enter(None)
    await place.seen()
    assert place.size() == (4, "")


@virtual_time
async def test_it_can_be_taken_away_and_put_back() -> None:
    place = Place(installed=False)
    place.enter(settings())
    await place.seen()
    assert place.size() == (4, "")
    place.policy.install(True)
    assert place.size() == (3, "1")
    place.policy.install(False)
    assert place.size() == (4, "")


@virtual_time
async def test_a_recovery_group_without_the_label_of_elsewhere_or_gone_is_none() -> None:
    place = Place()
    place.enter(settings(), namespace="team-b")
    place.enter(settings(nodes=2), labels={**LABEL, "recovery.trainjob.dev/birth-settings": "false"})
    await place.seen()
    assert place.size() == (4, "")
    label = {"metadata": {"labels": LABEL}}
    place.server.patch(RECOVERY_GROUPS, "llm", label, kind=PatchKind.MERGE, namespace="ml")
    await place.seen()
    assert place.size() == (2, "1")
    place.server.delete(RECOVERY_GROUPS, "llm", namespace="ml")
    await place.seen()
    assert place.size() == (4, "")


@virtual_time
async def test_it_keeps_nothing_of_what_is_past_even_where_no_job_is_ever_created() -> None:
    place = Place(installed=False)
    for revision in range(1, 50):
        place.enter(settings(revision=revision))
        await place.seen()
    assert len(place.policy._unseen) <= 2
    assert len(place.policy._labelled) == 1
