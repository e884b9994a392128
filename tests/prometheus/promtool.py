"""`promtool test rules` on the committed rule files, from a scenario in Python."""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import yaml

from recovery.dashboards.prometheus_files import ALERTS_FILE, RULES_FILE
from recovery.dashboards.rules import INTERVAL_SECONDS, recording_groups
from recovery.generated_files import REPOSITORY

FILES = tuple(str(REPOSITORY / path) for path in (RULES_FILE, ALERTS_FILE))
_ORDER = [*(group.name for group in recording_groups()), "recovery-alerts"]


@dataclass(frozen=True)
class Expected:
    """The result of an expression at one time: the samples with their labels, as promtool writes them."""

    expr: str
    at: str
    """A time as in `7m10s`. Never the time of a sample, because versions differ about the ends of ranges."""
    samples: Mapping[str, float]


def run(promtool: Path, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([promtool, *arguments], capture_output=True, text=True, input=stdin, timeout=120, check=False)


def check(
    promtool: Path,
    folder: Path,
    series: Mapping[str, str],
    expected: list[Expected],
    *,
    interval_seconds: int = 60,
    starts_at: datetime | None = None,
) -> None:
    """Each series has a sample in each interval, in promtool's notation. `starts_at` None: at the epoch.

    Raises AssertionError with promtool's message.
    """
    tests = [
        {
            "expr": each.expr,
            "eval_time": each.at,
            "exp_samples": [{"labels": labels, "value": value} for labels, value in each.samples.items()],
        }
        for each in expected
    ]
    document = {
        "rule_files": list(FILES),
        "evaluation_interval": f"{INTERVAL_SECONDS}s",
        "group_eval_order": _ORDER,
        "tests": [
            {
                "interval": f"{interval_seconds}s",
                **({} if starts_at is None else {"start_timestamp": f"{starts_at:%Y-%m-%dT%H:%M:%SZ}"}),
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "promql_expr_test": tests,
            }
        ],
    }
    file = folder / "rules.test.yaml"
    file.write_text(yaml.safe_dump(document))
    done = run(promtool, "test", "rules", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
