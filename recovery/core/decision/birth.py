"""Birth settings: what the Jobs of the next incarnation are created with. They are tried before anything is deleted.

The API server refuses an invalid Job, and JobSet then retries without end while the group stays down. So new settings
are first entered in the ledger, then a dry run shows their effect, and only then is the group restarted. Settings that
fail are withdrawn.
"""

from datetime import timedelta

import msgspec

from recovery.core.decision import avoidance
from recovery.core.diagnosis.membership import member_count
from recovery.core.diagnosis.resized import template_size
from recovery.core.incident import sizes
from recovery.core.incident.attempt_limits import restart_of
from recovery.core.model.birth_settings import BirthOutcome, BirthSettings
from recovery.core.model.facts import JobFacts, JobSetFacts, Snapshot
from recovery.core.model.ledger import Ledger
from recovery.core.model.reason import Explanation, Reason, because
from recovery.core.plan.actions import TryBirth
from recovery.core.plan.context import ReconcileContext

TRY_AGAIN_AFTER = timedelta(milliseconds=250)
"""The API server's watch of RecoveryGroups takes a moment to show it the settings."""
TRY_FOR = timedelta(seconds=5)
"""An API server that has not applied the settings after this long does not have the admission policy."""


class BirthTry(msgspec.Struct, frozen=True):
    """How far the trial of birth settings has come."""

    ledger: Ledger
    """The ledger with the settings, or with the earlier ones if they are refused."""
    refused: Explanation | None = None
    """Why the settings cannot be used. None: they can, or `trying` is set."""
    trying: TryBirth | None = None
    """The dry run that will show whether they can be used. None: that is known."""


def wished(snapshot: Snapshot, job: JobFacts, nodes: int, avoid_hosts: tuple[str, ...] = ()) -> BirthSettings | None:
    """The settings that create the Job with this many nodes. None: its template alone does so."""
    assert snapshot.jobset is not None, "a Job of the group has a JobSet"
    size = None if nodes == template_size(snapshot, job) else nodes
    if size is None and not avoid_hosts:
        return None
    return BirthSettings(
        revision=0,
        job_set_uid=snapshot.jobset.uid,
        replicated_job=job.replicated_job,
        since=job.created_at,
        nodes=size,
        avoid_hosts=avoid_hosts,
    )


def tried(context: ReconcileContext, ledger: Ledger, wish: BirthSettings | None) -> BirthTry:
    """The ledger with these settings, as far as a dry run has shown that they work."""
    known = ledger.birth_settings
    if wish is None:
        return BirthTry(msgspec.structs.replace(ledger, birth_settings=None))
    jobset = context.snapshot.jobset
    assert jobset is not None, "settings are for the Job of a JobSet"
    if known is None or not wish.same_as(known):
        entered = _entered(context, ledger, wish)
        return BirthTry(entered, trying=_dry_run(jobset, entered))
    if any(_born_with(known, job) for job in context.snapshot.jobs):
        return BirthTry(ledger)
    trial = context.snapshot.birth_trial
    if trial is None or trial.settings != known:
        return BirthTry(ledger, trying=_dry_run(jobset, ledger))
    match trial.outcome:
        case BirthOutcome.APPLIED:
            return BirthTry(ledger)
        case BirthOutcome.NOT_APPLIED if timedelta() <= context.now - known.since < TRY_FOR:
            return BirthTry(ledger, trying=_dry_run(jobset, ledger))
        case BirthOutcome.NOT_APPLIED:
            refused = because(Reason.BIRTH_SETTINGS_NOT_APPLIED)
        case BirthOutcome.OVERRULED:
            refused = because(Reason.BIRTH_SETTINGS_OVERRULED)
        case _:
            refused = because(Reason.BIRTH_SETTINGS_REFUSED, why=trial.message)
    return BirthTry(withdrawn(context, ledger), refused=refused)


def _born_with(settings: BirthSettings, job: JobFacts) -> bool:
    """The Job was created with these settings.

    A RecoveryGroup that was deleted and created again counts its revisions from 1, so the revision of an older Job
    means nothing. The API's dates are whole seconds.
    """
    return job.birth_revision == settings.revision_text and job.created_at >= settings.since.replace(microsecond=0)


def kept(context: ReconcileContext, ledger: Ledger) -> Ledger:
    """The ledger whose settings create the Job's successor with the Job's size, off the nodes that the group avoids.

    It ends settings that were tried for another purpose in vain. That needs no dry run: the API server has created the
    Job, and accepted as many hosts to avoid. A size that a user has given to a Job of the template's size needs one.
    """
    snapshot, known = context.snapshot, ledger.birth_settings
    job = sizes.only_job(snapshot)
    if job is None or (known is None and ledger.elastic is None):
        return ledger
    size, template = member_count(job), template_size(snapshot, job)
    untried = job.born_nodes is None and template is not None and (known is None or known.nodes != size)
    avoid = avoidance.hosts(avoidance.current(context, ledger))
    wish = wished(snapshot, job, template if untried and template is not None else size, avoid)
    if wish is None:
        return msgspec.structs.replace(ledger, birth_settings=None)
    return ledger if wish.same_as(known) else _entered(context, ledger, wish)


class BornWrong(msgspec.Struct, frozen=True):
    """The Job of the new incarnation does not match its settings."""

    why: Explanation
    again: bool = False
    """The Job was created without them, for the first time in this incident: another restart may apply them."""


def born_wrong(context: ReconcileContext, ledger: Ledger) -> BornWrong | None:
    """Whether the Job was refused, or created without its settings. None: neither is known.

    The ranks get the size that the Job was created with (`PET_NNODES`), so the size is not patched later.
    """
    settings, snapshot, open_ = ledger.birth_settings, context.snapshot, ledger.current_incident
    jobset = snapshot.jobset
    if settings is None or jobset is None or jobset.uid != settings.job_set_uid:
        return None
    restart = restart_of(ledger)
    if restart is None or restart.started_at < settings.since:
        return None  # the present Job is older than its settings: they are still being tried
    jobs = [job for job in snapshot.jobs if job.uid not in open_.target.job_uids]
    refused_at = jobset.failed_create_at
    # The dates of Events are whole seconds. An Event from before the settings says nothing about them.
    if not snapshot.jobs and refused_at is not None and refused_at >= settings.since.replace(microsecond=0):
        return BornWrong(because(Reason.BIRTH_SETTINGS_REFUSED, why=jobset.failed_create))
    born = (job for job in jobs if job.replicated_job == settings.replicated_job)
    wrong = any(settings.nodes is not None and job.born_nodes is None for job in born)
    if not wrong:
        return None
    before = any(each.reason is Reason.BIRTH_SETTINGS_NOT_APPLIED for each in open_.considered)
    return BornWrong(because(Reason.BIRTH_SETTINGS_NOT_APPLIED), again=not before)


def withdrawn(context: ReconcileContext, ledger: Ledger) -> Ledger:
    """The ledger with the settings that the present Job was created with, or with none if there is no Job."""
    after = kept(context, ledger) if sizes.only_job(context.snapshot) is not None else ledger
    return msgspec.structs.replace(ledger, birth_settings=None) if after is ledger else after


def _entered(context: ReconcileContext, ledger: Ledger, wish: BirthSettings) -> Ledger:
    revision = ledger.birth_revisions + 1
    settings = msgspec.structs.replace(wish, revision=revision, since=context.now)
    return msgspec.structs.replace(ledger, birth_revisions=revision, birth_settings=settings)


def _dry_run(jobset: JobSetFacts, ledger: Ledger) -> TryBirth:
    assert ledger.birth_settings is not None, "only settings in the ledger are tried"
    return TryBirth(jobset.name, ledger.birth_settings)
