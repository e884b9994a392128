"""How long a Job waits before it replaces failed pods.

Source: `pkg/controller/job/backoff_utils.go` of Kubernetes 1.36. The backoff is not stored in the Job, so it is lost
when the controller restarts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from recovery.sim.api.kinds.kind import Body
from recovery.sim.controllers.job_pods import finished_at

FIRST_BACKOFF_SECONDS = 10
LONGEST_BACKOFF_SECONDS = 600


@dataclass(frozen=True, slots=True)
class JobBackoff:
    """Failures of a Job's pods since the last pod that succeeded."""

    failures: int = 0
    last_failure_at: datetime | None = None
    """None: no pod has failed."""

    def after(self, succeeded: Sequence[Body], failed: Sequence[Body]) -> "JobBackoff":
        """The backoff after newly finished pods. A deleted pod counts as failed."""
        if not succeeded and not failed:
            return self
        failures = sorted(finished_at(pod) for pod in failed)
        if not succeeded:
            return JobBackoff(self.failures + len(failures), failures[-1])
        last_success_at = max(finished_at(pod) for pod in succeeded)
        later = [at for at in failures if at > last_success_at]
        return JobBackoff(len(later), later[-1] if later else None)

    def remaining_seconds(self, now: datetime) -> float:
        """How long until a pod may be created. 0: now."""
        if not self.failures or self.last_failure_at is None:
            return 0.0
        doubled = FIRST_BACKOFF_SECONDS * 2 ** min(self.failures - 1, 10)
        due_at = self.last_failure_at + timedelta(seconds=min(LONGEST_BACKOFF_SECONDS, doubled))
        return max(0.0, (due_at - now).total_seconds())
