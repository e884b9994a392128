"""What Enforce would have done in incidents of mode Observe: the figures in reports, and the sentence."""

import msgspec

from recovery.core.model.enforce_estimate import EnforceEstimate
from recovery.report.words import counted, gpu_hours

ENFORCE_BASIS = (
    "Where the platform restarted the group, Enforce comes back as fast, and saves the time before that. Where it "
    "restarted a rank in place, the others wait for their collective to time out (10 minutes by default), or "
    "for the next failure, and Enforce takes as long as was measured for a restart of so many pods. The time to start "
    "is the same in both cases, and left out."
)


class EnforceAccount(msgspec.Struct, frozen=True, rename="camel"):
    """An estimate of what Enforce would have done and saved in incidents of mode Observe."""

    restarts: int
    idle_gpu_seconds: float
    """With these restarts."""
    platform_idle_gpu_seconds: float
    """Without them."""
    saved_gpu_seconds: float
    """Negative: Enforce would have cost more."""


def enforce_account(estimate: EnforceEstimate) -> EnforceAccount:
    """The estimate as reports show it."""
    return EnforceAccount(
        estimate.restarts, estimate.idle_gpu_seconds, estimate.platform_idle_gpu_seconds, estimate.saved_gpu_seconds
    )


def enforce_sentence(estimate: EnforceEstimate | EnforceAccount) -> str:
    """`Under Observe, Enforce would have made 12 restarts and saved 34.5 GPU-hours (estimated).`"""
    restarts, saved = counted(estimate.restarts, "restart"), estimate.saved_gpu_seconds
    effect = f"saved {gpu_hours(saved)} GPU-hours" if saved >= 0 else f"cost {gpu_hours(-saved)} GPU-hours more"
    return f"Under Observe, Enforce would have made {restarts} and {effect} (estimated)."
