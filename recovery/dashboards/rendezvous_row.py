"""The row Rendezvous of the fleet's dashboard: which members are missing, and how long groups take to meet."""

from recovery.dashboards.frame import TO_JOB_OF_SERIES
from recovery.dashboards.panels import AnyPanel, Query, bars, lines, observed, of_jobs
from recovery.telemetry.catalogue.label_values import RENDEZVOUS_SOURCES
from recovery.telemetry.catalogue.of_fleet import RENDEZVOUS_DURATION, RENDEZVOUS_SINCE_TRIGGER

_NOT_MEASURED = "No rendezvous measured"


def panels() -> list[AnyPanel]:
    arrived, joined, expected = (
        f"sum by (namespace, job_name) ({of_jobs('rendezvous_participants', matcher)})"
        for matcher in ('state="arrived"', 'state="joined"', 'state="expected"')
    )
    return [
        lines(
            "Members missing from a rendezvous",
            "Members that a starting group still waits for: those that have not arrived, then those that have not"
            " joined. A line that does not fall to 0 is a stuck group: see the runbook of RecoveryRendezvousStuck. A"
            " click opens the job's dashboard.",
            [Query(f"{expected} - ({arrived} < {expected}) or {expected} - {joined}", "{{namespace}}/{{job_name}}")],
            unit="none",
            stepped=True,
            to=TO_JOB_OF_SERIES,
        ),
        bars(
            "How rendezvous ended, whole cluster",
            "Rendezvous that ended in this time range, as an agent or a joined probe measured them, by their cause."
            " Interrupted: a loss, a restart or a time-out came before all had joined.",
            Query(
                f"round(sum by (cause, outcome, source) ({_measured('count')})) > 0",
                "{{cause}}: {{outcome}} ({{source}})",
            ),
            unit="none",
            colors={},
            width=12,
            decimals=0,
            if_none=_NOT_MEASURED,
        ),
        bars(
            "Time of a rendezvous, whole cluster",
            "From the first arrival until all had joined, for what joined in this time range: half of them were faster"
            " than p50, nineteen of twenty faster than p95. Interpolated in the buckets of the histogram. Pods without"
            " agent and joined probe measure nothing.",
            Query(
                _p50_and_p95("le, cause, source", _measured("bucket", 'outcome="Joined"')),
                "{{cause}} {{quantile}} ({{source}})",
            ),
            unit="s",
            colors={},
            width=12,
            if_none=_NOT_MEASURED,
        ),
        bars(
            "From the trigger until all have joined, whole cluster",
            "How long restarts took until all ranks had joined, as the agents measured it. RestartInPlace begins at the"
            " failure, the others at the attempt of the controller. Interpolated as well.",
            Query(
                _p50_and_p95("le, cause", observed(f"{RENDEZVOUS_SINCE_TRIGGER.name}_bucket")),
                "{{cause}} {{quantile}}",
            ),
            unit="s",
            colors={},
            width=12,
            if_none=_NOT_MEASURED,
        ),
    ]


def _measured(part: str, *matchers: str) -> str:
    """What was counted of rendezvous in the time range. A controller of before may have left other sources."""
    sources = "|".join(RENDEZVOUS_SOURCES)
    chosen = ", ".join((f'source=~"{sources}"', *matchers))
    return observed(f"{RENDEZVOUS_DURATION.name}_{part}{{{chosen}}}")


def _p50_and_p95(by: str, counted: str) -> str:
    """Quantiles of a histogram, without those of which nothing was counted."""
    return " or ".join(
        f'label_replace(histogram_quantile({share}, sum by ({by}) ({counted})) >= 0, "quantile", "{name}", "", "")'
        for name, share in (("p50", 0.5), ("p95", 0.95))
    )
