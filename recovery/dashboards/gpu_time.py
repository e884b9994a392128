"""The first figures of the row Where GPU time goes, for all jobs that the variables of a dashboard select."""

from recovery.dashboards.palette import BAD, GOOD, NEUTRAL, WARNING
from recovery.dashboards.panels import GPU_HOURS, AnyPanel, of_jobs, one_number
from recovery.dashboards.rules import INTERVAL_SECONDS


def gpu_time_figures(whose: str, group: str) -> list[AnyPanel]:
    """Effective training time, GPU time lost and GPU time given back.

    `whose`: the GPU time that is meant, as in `the job's`. `group`: what was suspended, as in `suspended groups`.
    """
    idle = f"sum(increase({of_jobs('gpu_idle_seconds_total')}[$__range]))"
    released = f"sum(increase({of_jobs('gpu_released_seconds_total')}[$__range]))"
    # As in the rules: a suspended group does not hold the GPUs that it has released.
    held = f"(sum(sum_over_time({of_jobs('job_gpus')}[$__range])) * {INTERVAL_SECONDS} - {released})"
    return [
        one_number(
            "Effective training time",
            f"ETTR: the share of {whose} GPU time in this time range in which no incident kept the GPUs idle. Work"
            " that was done again after a checkpoint is not subtracted. A job that never started has no incident.",
            f"1 - {idle} / {held}",
            unit="percentunit",
            steps=((None, BAD), (0.9, WARNING), (0.95, GOOD)),
            width=8,
            decimals=1,
        ),
        one_number(
            "GPU time lost",
            "GPU-hours that incidents kept idle in this time range. The bars below show where they went.",
            f"{idle} / 3600",
            unit=GPU_HOURS,
            steps=((None, NEUTRAL),),
            width=8,
            decimals=1,
        ),
        one_number(
            "GPU time given back",
            f"GPU-hours that {group} released to other jobs in this time range. They do not count as lost.",
            f"{released} / 3600",
            unit=GPU_HOURS,
            steps=((None, NEUTRAL),),
            width=8,
            decimals=1,
        ),
    ]
