"""`python -m recovery.dashboards [--check]`: exit code 0, or 1 with the names of the files that have drifted."""

import sys

from recovery.dashboards import metrics_page
from recovery.dashboards.boards import dashboard_files
from recovery.dashboards.prometheus_files import rule_files
from recovery.generated_files import REPOSITORY, GeneratedFiles


def generated() -> GeneratedFiles:
    """The rules, the dashboards, and the page of metrics."""
    return GeneratedFiles(
        program="python -m recovery.dashboards",
        source="recovery/dashboards",
        texts={**rule_files(), **dashboard_files(), metrics_page.PAGE: metrics_page.page()},
        owned=("dashboards/**/*.*",),
    )


if __name__ == "__main__":
    sys.exit(generated().main(sys.argv[1:], REPOSITORY))
