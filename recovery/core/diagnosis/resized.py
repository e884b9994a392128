"""Whether a user has given a child Job another size than the template in its JobSet has.

JobSet leaves such a Job alone, but makes its successor by the template: a restart would undo the size.
"""

from recovery.core.diagnosis.membership import member_count, member_jobs
from recovery.core.model.facts import ReplicatedJobFacts, Snapshot
from recovery.core.model.reason import Explanation, Reason, because


def resized(snapshot: Snapshot) -> Explanation | None:
    """Which Job has another size than its successor would have. None: none has, or no template tells."""
    if snapshot.jobset is None:
        return None
    sizes = {each.name: _size(each) for each in snapshot.jobset.replicated_jobs}
    for job in member_jobs(snapshot):
        size, template = member_count(job), sizes.get(job.replicated_job)
        if template is not None and size != template:
            return because(Reason.USER_RESIZED, job=job.name, size=size, template=template)
    return None


def _size(template: ReplicatedJobFacts) -> int | None:
    """How many pods a Job of that template is whole with; the API server's own default of `parallelism` is 1."""
    if not template.size_known:
        return None
    parallelism = 1 if template.parallelism is None else template.parallelism
    return parallelism if template.completions is None else min(parallelism, template.completions)
