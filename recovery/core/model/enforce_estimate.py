"""What Enforce would have done in incidents of mode Observe, and what it would have saved: an estimate."""

from collections.abc import Iterable

import msgspec


class EnforceEstimate(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What Enforce would have done in incidents of mode Observe. The GPU-seconds are an estimate. They omit what is
    the same in both modes."""

    restarts: int = 0
    """Restarts of the group that Enforce would have made."""
    idle_gpu_seconds: float = 0.0
    """Estimated idle GPU-seconds of incidents of mode Observe if Enforce had restarted the group."""
    platform_idle_gpu_seconds: float = 0.0
    """Estimated idle GPU-seconds of the same incidents without restarts by Enforce."""

    @property
    def saved_gpu_seconds(self) -> float:
        """What Enforce would have saved. Negative: it would have cost more."""
        return round(self.platform_idle_gpu_seconds - self.idle_gpu_seconds, 3)


def summed(estimates: Iterable[EnforceEstimate]) -> EnforceEstimate:
    """The sum of the estimates."""
    restarts, idle_gpu_seconds, platform_idle_gpu_seconds = 0, 0.0, 0.0
    for each in estimates:
        restarts += each.restarts
        idle_gpu_seconds += each.idle_gpu_seconds
        platform_idle_gpu_seconds += each.platform_idle_gpu_seconds
    return EnforceEstimate(restarts, round(idle_gpu_seconds, 3), round(platform_idle_gpu_seconds, 3))
