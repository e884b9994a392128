"""What both dashboards share: variables, links, rows, and the JSON that Grafana imports."""

import json
from collections.abc import Mapping, Sequence

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as models

from recovery.dashboards.alert import RUNBOOKS
from recovery.dashboards.panels import DATASOURCE, AnyPanel, link
from recovery.dashboards.series import job_series

FLEET_UID = "recovery-fleet"
JOB_UID = "recovery-job"
TAG = "trainjob-recovery"
_TIME = "${__url_time_range}&var-datasource=${datasource}"

TO_JOB_OF_SERIES = link(
    "Open the job's dashboard",
    f"/d/{JOB_UID}?var-namespace=${{__field.labels.namespace}}&var-job_name=${{__field.labels.job_name}}&{_TIME}",
)
"""For panels whose series have the labels of a job."""
TO_JOB_OF_ROW = link(
    "Open the job's dashboard",
    f"/d/{JOB_UID}?var-namespace=${{__data.fields.namespace}}&var-job_name=${{__data.fields.job_name}}&{_TIME}",
)
"""For tables of jobs."""
TO_RUNBOOK = link("Open the runbook", f"{RUNBOOKS}/${{__data.fields.alertname}}.md")


def board(
    *, uid: str, title: str, description: str, other: tuple[str, str], rows: Mapping[str, Sequence[AnyPanel]]
) -> str:
    """The JSON of a dashboard. `other`: uid and title of the dashboard that its header links to."""
    made = (
        builders.Dashboard(title)
        .uid(uid)
        .description(description)
        .tags([TAG])
        .editable()
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .time("now-6h", "now")
        .refresh("30s")
        .timezone("browser")
        .link(
            builders.DashboardLink(other[1])
            .type(models.DashboardLinkType.LINK)
            .url(f"/d/{other[0]}")
            .icon("dashboard")
            .include_vars(True)
            .keep_time(True)
        )
    )
    for variable in _variables():
        made.with_variable(variable)
    for name, panels in rows.items():
        made.with_row(builders.Row(name))
        for panel in panels:
            made.with_panel(panel)
    return _json(_numbered(made.build()))


def _variables() -> list[builders.DatasourceVariable | builders.QueryVariable]:
    jobs = job_series("recovery_job_info")
    return [
        builders.DatasourceVariable("datasource").label("Data source").type("prometheus"),
        _label_values("namespace", "Namespace", jobs),
        _label_values("job_name", "Job", f'{jobs}{{namespace=~"$namespace"}}'),
    ]


def _label_values(name: str, label: str, series: str) -> builders.QueryVariable:
    query = f"label_values({series}, {name})"
    return (
        builders.QueryVariable(name)
        .label(label)
        .datasource(DATASOURCE)
        .query({"query": query, "refId": name})
        .definition(query)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(models.VariableOption(selected=True, text="All", value="$__all"))
    )


def _numbered(made: models.Dashboard) -> models.Dashboard:
    """Numbers the panels. Grafana needs the numbers, and the SDK sets none."""
    for number, panel in enumerate(made.panels or (), start=1):
        panel.id_val = number
    return made


def _json(made: models.Dashboard) -> str:
    return json.dumps(made, cls=JSONEncoder, indent=2, sort_keys=True) + "\n"
