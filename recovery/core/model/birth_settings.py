"""What the Jobs of a group are created with, beside what the template in their JobSet says.

A MutatingAdmissionPolicy (`manifests/components/birth-settings`), or below Kubernetes 1.36 a webhook
(`manifests/admission/birth-settings`), reads the settings from `status.birthSettings` of a RecoveryGroup that carries
`BIRTH_SETTINGS_LABEL`, and applies them whenever JobSet creates the Job. So they hold for every restart, no matter who
makes it.
"""

from datetime import datetime
from enum import StrEnum

import msgspec


class BirthSettings(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Settings for the Jobs of one ReplicatedJob. Nothing of the template is changed but what is set here."""

    revision: int
    """The number of these settings in the ledger. A Job that was created with them carries the number in
    `BIRTH_SETTINGS_ANNOTATION`."""
    job_set_uid: str = msgspec.field(name="jobSetUID")
    replicated_job: str
    since: datetime
    """When they were entered in the ledger."""
    nodes: int | None = None
    """How many pods the Job has: its parallelism and its completions, `PET_NNODES` of its containers, and
    `NODES_ANNOTATION`. None: as many as the template says."""
    avoid_hosts: tuple[str, ...] = ()
    """Its pods go to no node whose label `kubernetes.io/hostname` has one of these values."""

    def same_as(self, other: "BirthSettings | None") -> bool:
        """The other ones create the same Jobs, whatever their revision and date."""
        return other is not None and self == msgspec.structs.replace(other, revision=self.revision, since=self.since)

    @property
    def revision_text(self) -> str:
        """The revision as annotations carry it."""
        return str(self.revision)


class BirthOutcome(StrEnum):
    """What a dry run of creating a Job with its birth settings has shown."""

    APPLIED = "Applied"
    """The API server would create the Job with the settings."""
    NOT_APPLIED = "NotApplied"
    """It would create the Job without them: the admission policy is not installed, or has not read them yet; or no
    replica serves the webhook in its place."""
    REFUSED = "Refused"
    """It would refuse the Job with them."""
    OVERRULED = "Overruled"
    """It would create the Job with the settings, and JobSet would give it the size of its template at once (JobSet's
    feature gate ElasticJobSet, `syncJobScaling`)."""
    NOT_ALLOWED = "NotAllowed"
    """The controller may not ask: its role lacks `create` on Jobs, which the component grants for dry runs."""


class BirthTrial(msgspec.Struct, frozen=True):
    """The latest dry run for a group."""

    settings: BirthSettings
    """As they stood in the ledger."""
    outcome: BirthOutcome
    message: str = ""
    """Refused, NotAllowed: what the API server says."""
