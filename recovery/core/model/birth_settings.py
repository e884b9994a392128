"""Settings with which the Jobs of a group are created, in addition to the template in their JobSet.

A MutatingAdmissionPolicy (`manifests/components/birth-settings`), or below Kubernetes 1.36 a webhook
(`manifests/admission/birth-settings`), reads the settings from `status.birthSettings` of a RecoveryGroup with
`BIRTH_SETTINGS_LABEL`, and applies them whenever JobSet creates the Job. So they apply to every restart, including
those by the platform.
"""

from datetime import datetime
from enum import StrEnum

import msgspec


class BirthSettings(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Settings for the Jobs of one ReplicatedJob. They change only these fields of the template."""

    revision: int
    """Number of these settings. A Job that was created with them has it in its annotation
    `recovery.trainjob.dev/birth-settings`."""
    job_set_uid: str = msgspec.field(name="jobSetUID")
    replicated_job: str
    since: datetime
    """When these settings were written to the ledger."""
    nodes: int | None = None
    """How many pods the Job has: sets its parallelism and completions, `PET_NNODES` of its containers, and the
    annotation `recovery.trainjob.dev/nodes`. None: as many as the template says."""
    avoid_hosts: tuple[str, ...] = ()
    """Pods of the Job are not scheduled to nodes whose label `kubernetes.io/hostname` has one of these values."""

    def same_as(self, other: "BirthSettings | None") -> bool:
        """The other settings create the same Jobs, apart from revision and date."""
        return other is not None and self == msgspec.structs.replace(other, revision=self.revision, since=self.since)

    @property
    def revision_text(self) -> str:
        """The revision as written in annotations."""
        return str(self.revision)


class BirthOutcome(StrEnum):
    """The result of a dry run that creates a Job with its birth settings."""

    APPLIED = "Applied"
    """The API server would create the Job with the settings."""
    NOT_APPLIED = "NotApplied"
    """The API server would create the Job without them. The admission policy is not installed or has not read them
    yet, or no replica serves the webhook that replaces it."""
    REFUSED = "Refused"
    """The API server would refuse the Job with them."""
    OVERRULED = "Overruled"
    """The API server would create the Job with the settings, but JobSet would set the size of its template again at
    once (JobSet's feature gate ElasticJobSet, `syncJobScaling`)."""
    NOT_ALLOWED = "NotAllowed"
    """The controller may not make a dry run: its role lacks `create` on Jobs, which the component grants for it."""


class BirthTrial(msgspec.Struct, frozen=True):
    """The latest dry run for a group."""

    settings: BirthSettings
    """The settings in the ledger at that time."""
    outcome: BirthOutcome
    message: str = ""
    """Refused, NotAllowed: the message of the API server."""
