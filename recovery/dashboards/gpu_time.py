"""The first figures of the row Where GPU time goes, for all jobs that the variables of a dashboard select."""

from recovery.dashboards.palette import BAD, GOOD, NEUTRAL, WARNING
from recovery.dashboards.panels import GPU_HOURS, AnyPanel, observed, of_jobs, one_number
from recovery.dashboards.rules import INTERVAL_SECONDS
from recovery.dashboards.series import NOT_OF_DRILLS, OF_DRILLS


def gpu_time_figures(whose: str, group: str) -> list[AnyPanel]:
    """Effective training time, GPU time lost, GPU time given back, and GPU time of drills.

    `whose`: the GPU time that is meant, as in `the job's`. `group`: what was suspended, as in `suspended groups`.
    """
    idle = f"sum(increase({of_jobs('gpu_idle_seconds_total', NOT_OF_DRILLS)}[$__range]))"
    of_drills = f"sum({observed(of_jobs('gpu_idle_seconds_total', OF_DRILLS))})"
    released = f"sum(increase({of_jobs('gpu_released_seconds_total')}[$__range]))"
    # As in the rules: a suspended group does not hold the GPUs that it has released.
    held = f"(sum(sum_over_time({of_jobs('job_gpus')}[$__range])) * {INTERVAL_SECONDS} - {released})"
    return [
        one_number(
            "Effective training time",
            f"ETTR: the share of {whose} GPU time in this time range in which no failure kept the GPUs idle. Work"
            " that was done again after a checkpoint is not subtracted, nor is the time of drills. A job that never"
            " started has no incident.",
            f"1 - {idle} / {held}",
            unit="percentunit",
            steps=((None, BAD), (0.9, WARNING), (0.95, GOOD)),
            width=6,
            decimals=1,
        ),
        one_number(
            "GPU time lost",
            "GPU-hours that incidents kept idle in this time range, without drills. The bars below show where they"
            " went.",
            f"{idle} / 3600",
            unit=GPU_HOURS,
            steps=((None, NEUTRAL),),
            width=6,
            decimals=1,
        ),
        one_number(
            "GPU time given back",
            f"GPU-hours that {group} released to other jobs in this time range. They do not count as lost.",
            f"{released} / 3600",
            unit=GPU_HOURS,
            steps=((None, NEUTRAL),),
            width=6,
            decimals=1,
        ),
        one_number(
            "GPU time of drills",
            "GPU-hours that drills kept idle in this time range. They do not count as lost.",
            f"({of_drills} or vector(0)) / 3600",
            unit=GPU_HOURS,
            steps=((None, NEUTRAL),),
            width=6,
            decimals=1,
        ),
    ]
