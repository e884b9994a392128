"""Reads what Kueue says about the jobs that it queues: their Workloads. Commands read them with the user's rights.

Kueue need not be installed, and the user may not be allowed to read its objects. Neither fails a command.
"""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from recovery.core.model.facts import Condition
from recovery.kube.cluster_reader import read_all
from recovery.kube.projections.metadata import Date, Metadata, ObjectEntry, RawCondition, conditions
from recovery.ports import ApiClient, ApiError, NoSuchResourceError, Resource

_GROUP = "kueue.x-k8s.io"
WORKLOADS = Resource(_GROUP, "v1beta2", "workloads", "Workload")
_OLDER_WORKLOADS = Resource(_GROUP, "v1beta1", "workloads", "Workload")
"""All that is read here is the same in both versions. Kueue 0.14 and older serve only this one."""
_JOB_UID_LABEL = f"{_GROUP}/job-uid"
"""On a Workload: the UID of the job that it was made for."""


class KueueWorkload(msgspec.Struct, frozen=True):
    """A Workload: the request of one job for quota."""

    name: str
    job_uid: str
    """Empty: it was made by a user, or for no single job."""
    active: bool
    """False: Kueue does not admit it before someone sets `spec.active` to true again."""
    requeued: int
    """How often Kueue has queued it again because its pods were not ready in time. Only a deactivation resets it."""
    requeue_at: datetime | None
    """When Kueue queues it again. None: no backoff is in force."""
    conditions: tuple[Condition, ...]

    def condition(self, type_: str, status: str = "True") -> Condition | None:
        """The condition with that status. None: there is none."""
        return next((each for each in self.conditions if (each.type, each.status) == (type_, status)), None)


class KueueReading(msgspec.Struct, frozen=True):
    """The Workloads that were read."""

    by_job: Mapping[str, KueueWorkload] = {}
    """By UID of the job."""
    refused: str = ""
    """Why they could not be read. Empty: they were, or Kueue is not installed."""


class _Labels(msgspec.Struct, frozen=True):
    job_uid: str = msgspec.field(name=_JOB_UID_LABEL, default="")


class _Metadata(Metadata, frozen=True, rename="camel"):
    labels: _Labels = _Labels()


class _Spec(msgspec.Struct, frozen=True):
    active: bool = True


class _RequeueState(msgspec.Struct, frozen=True, rename="camel"):
    count: int | None = None
    requeue_at: Date | None = None


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    conditions: tuple[RawCondition, ...] = ()
    requeue_state: _RequeueState | None = None


class _Workload(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()


_decode = msgspec.json.Decoder(_Workload).decode


def decode_workload(raw: bytes | msgspec.Raw) -> ObjectEntry[KueueWorkload]:
    found = _decode(raw)
    requeue = found.status.requeue_state or _RequeueState()
    return found.metadata.entry(
        KueueWorkload(
            name=found.metadata.name,
            job_uid=found.metadata.labels.job_uid,
            active=found.spec.active,
            requeued=requeue.count or 0,
            requeue_at=requeue.requeue_at,
            conditions=conditions(found.status.conditions),
        )
    )


async def read_kueue_workloads(client: ApiClient, namespace: str | None, *, job_uid: str = "") -> KueueReading:
    """The Workloads of the namespace. `namespace` None: of all. `job_uid`: only that job's. Raises no ApiError."""
    selector = f"{_JOB_UID_LABEL}={job_uid}" if job_uid else ""
    for resource in (WORKLOADS, _OLDER_WORKLOADS):
        try:
            listed = await read_all(client, resource, namespace, decode_workload, label_selector=selector)
        except NoSuchResourceError:
            continue
        except ApiError as error:
            return KueueReading(refused=str(error))
        found = {entry.value.job_uid: entry.value for entry in listed.entries if entry.value.job_uid}
        return KueueReading(found, refused="; ".join(listed.unreadable))
    return KueueReading()
