"""Panels of the dashboards: each kind of panel in one style, with one way to write its queries.

Every panel has a unit, a title that names what it shows, and a description that says what to do with it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import bargauge, common, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery as AnyQuery
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.common import (
    BarGaugeDisplayMode,
    BigValueColorMode,
    BigValueGraphMode,
    BigValueTextMode,
    DataSourceRef,
    LegendDisplayMode,
    LegendPlacement,
    LineInterpolation,
    StackingMode,
    TooltipDisplayMode,
    VisibilityMode,
    VizOrientation,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from recovery.dashboards.palette import BAD, GOOD, NEUTRAL, PHASE_REASONS, REASON_COLORS, WARNING
from recovery.dashboards.rules import INTERVAL_SECONDS
from recovery.dashboards.series import PREFIX, fleet_series, job_series

AnyPanel = stat.Panel | timeseries.Panel | bargauge.Panel | table.Panel | statetimeline.Panel
Steps = Sequence[tuple[float | None, str]]
"""The value from which each colour applies. The first is None: its colour applies from the lowest value."""

DATASOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
STEP = f"{INTERVAL_SECONDS}s"
"""A smaller step would show nothing more, and `$__rate_interval` is four of them."""

GPUS = "suffix: GPUs"
GPU_HOURS = "suffix: GPU h"
CORES = "suffix: cores"
_WHOLE = frozenset({"none", GPUS})
"""Units of things that are counted. Their axes have no fractions."""


@dataclass(frozen=True)
class Query:
    """One query of a panel. `legend` is a Grafana legend, such as `{{reason}}`."""

    expr: str
    legend: str = "__auto"


@dataclass(frozen=True)
class BoardColumn:
    """A column of a table: the field as the query returns it, its title, and how to show it."""

    field: str
    title: str
    unit: str = "none"
    mappings: tuple[models.ValueMapping, ...] = ()
    link: builders.DashboardLink | None = None
    width: int = 0
    """In pixels. 0: as wide as the available space."""


def of_jobs(name: str, *matchers: str) -> str:
    """The recorded series of a metric of jobs, for the jobs that the variables select."""
    chosen = ('namespace=~"$namespace"', 'job_name=~"$job_name"', *matchers)
    return f"{job_series(PREFIX + name)}{{{', '.join(chosen)}}}"


def of_fleet(name: str, *matchers: str) -> str:
    """The recorded series of a metric of the whole cluster. The variables do not apply to it."""
    return fleet_series(PREFIX + name) + (f"{{{', '.join(matchers)}}}" if matchers else "")


def observed(series: str) -> str:
    """What a histogram's series counted in the time range, including series that began in it.

    Histograms have too many series to start all of them at 0, and `increase` alone leaves out the first sample.
    """
    window = "$__range"
    more = f"increase({series}[{window}])"
    first = f"(min_over_time({series}[{window}]) unless {series} offset {window})"
    return f"({more} + {first} or {more})"


def drills() -> str:
    """A query: the incidents that drills caused in the time range, by job. A job has the series from its first drill
    on."""
    return observed(of_jobs("failures_total", 'failure_class="Drill"'))


def oldest_incident() -> str:
    """A query: the age in seconds of the oldest incident that RecoveryOverdue may be about. The alert excludes more."""
    resuming = of_jobs("job_phase", 'phase="Resuming"')
    started = of_jobs("incident_start_timestamp_seconds")
    return f"time() - min({started} unless on (namespace, job_name) {resuming} == 1)"


def phase_number() -> str:
    """A query: for each job the number of its phase, 0 for Healthy. `PHASE_NAMES` shows the names instead."""
    terms = ("{} * {}".format(of_jobs("job_phase", f'phase="{phase}"'), number) for number, phase in _numbered_phases())
    return f"max by (namespace, job_name) ({' or '.join(terms)})"


def _numbered_phases() -> list[tuple[int, str]]:
    return list(enumerate(PHASE_REASONS, start=1))


_STANDING_COLORS = {"Unknown": NEUTRAL, "Met": GOOD, "Forming": WARNING, "Broken": BAD}
"""The standings, the worst last."""


def standing_number() -> str:
    """A query: for each job the number of its standing. `STANDING_NAMES` shows the names instead."""
    terms = (
        "{} * {}".format(of_jobs("job_standing", f'standing="{standing}"'), number)
        for number, standing in enumerate(_STANDING_COLORS)
    )
    return f"max by (namespace, job_name) ({' or '.join(terms)})"


def broken_groups() -> str:
    """A query: 1 for each group that hangs without an open incident."""
    standing, phase = of_jobs("job_standing", 'standing="Broken"'), of_jobs("job_phase", 'phase="Healthy"')
    return f"{standing} == 1 and on (namespace, job_name) {phase} == 1"


def words(names: Mapping[str, tuple[str, str]]) -> models.ValueMap:
    """Shows values as words. `names`: for each value its word and its colour."""
    return models.ValueMap(
        {
            value: models.ValueMappingResult(text=text, color=color, index=index)
            for index, (value, (text, color)) in enumerate(names.items())
        }
    )


PHASE_NAMES = words(
    {
        "0": ("Healthy", "transparent"),
        **{str(number): (phase, REASON_COLORS[PHASE_REASONS[phase]]) for number, phase in _numbered_phases()},
    }
)


STANDING_NAMES = words(
    {str(number): (standing, color) for number, (standing, color) in enumerate(_STANDING_COLORS.items())}
)


def link(title: str, url: str) -> builders.DashboardLink:
    """A link from a value to another page, in the same tab."""
    return builders.DashboardLink(title).url(url)


def one_number(
    title: str,
    description: str,
    query: str,
    *,
    unit: str,
    steps: Steps,
    width: int = 4,
    height: int = 4,
    decimals: int | None = None,
    mappings: Sequence[models.ValueMapping] = (),
    if_none: str = "",
) -> stat.Panel:
    """One value, as large as fits. It shows `if_none` if the query returns nothing."""
    panel = (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .span(width)
        .height(height)
        .unit(unit)
        .mappings(list(mappings))
        .thresholds(_thresholds(steps))
        .color_mode(BigValueColorMode.BACKGROUND_SOLID)
        .graph_mode(BigValueGraphMode.NONE)
        .text_mode(BigValueTextMode.VALUE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .targets(_targets([Query(query)], instant=True))
    )
    if decimals is not None:
        panel.decimals(decimals)
    return panel.no_value(if_none) if if_none else panel


def bars(
    title: str,
    description: str,
    query: Query,
    *,
    unit: str,
    colors: Mapping[str, str],
    width: int = 8,
    height: int = 8,
    decimals: int = 1,
    if_none: str = "",
) -> bargauge.Panel:
    """One bar for each series. `colors`: by legend; bars without one are grey."""
    panel = (
        bargauge.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .span(width)
        .height(height)
        .unit(unit)
        .decimals(decimals)
        .min(0)
        .orientation(VizOrientation.HORIZONTAL)
        .display_mode(BarGaugeDisplayMode.BASIC)
        .color_scheme(_fixed("#999999"))
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .targets(_targets([query], instant=True))
    )
    for name, color in colors.items():
        panel.override_by_name(name, [_color(color)])
    return panel.no_value(if_none) if if_none else panel


def lines(
    title: str,
    description: str,
    queries: Sequence[Query],
    *,
    unit: str,
    colors: Mapping[str, str] | None = None,
    width: int = 12,
    height: int = 8,
    stacked: bool = False,
    stepped: bool = False,
    top: float | None = None,
    to: builders.DashboardLink | None = None,
    if_none: str = "",
) -> timeseries.Panel:
    """Values over time. `stacked`: areas that add up. `stepped`: values hold until the next one. `top`: of the axis.
    It shows `if_none` if the queries return nothing."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .span(width)
        .height(height)
        .unit(unit)
        .min(0)
        .line_width(1 if stacked else 2)
        .fill_opacity(70 if stacked else 0)
        .color_scheme(builders.FieldColor().mode(models.FieldColorModeId.PALETTE_CLASSIC_BY_NAME))
        .show_points(VisibilityMode.NEVER)
        .legend(
            common.VizLegendOptions()
            .display_mode(LegendDisplayMode.LIST)
            .placement(LegendPlacement.BOTTOM)
            .show_legend(True)
        )
        .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
        .targets(_targets(queries, instant=False))
    )
    if unit in _WHOLE:
        panel.decimals(0)
    if stacked:
        panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL).group("A"))
    if stacked or stepped:
        panel.line_interpolation(LineInterpolation.STEP_AFTER)
    if top is not None:
        panel.max(top)
    for name, color in (colors or {}).items():
        panel.override_by_name(name, [_color(color)])
    if if_none:
        panel.no_value(if_none)
    return panel.data_links([to]) if to is not None else panel


def states(
    title: str,
    description: str,
    query: Query,
    *,
    mapping: models.ValueMap,
    width: int = 24,
    height: int = 8,
    to: builders.DashboardLink | None = None,
) -> statetimeline.Panel:
    """A line for each series, coloured by its state."""
    panel = (
        statetimeline.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .span(width)
        .height(height)
        .unit("none")
        .mappings([mapping])
        .show_value(VisibilityMode.AUTO)
        .row_height(0.8)
        .fill_opacity(90)
        .legend(
            common.VizLegendOptions()
            .display_mode(LegendDisplayMode.LIST)
            .placement(LegendPlacement.BOTTOM)
            .show_legend(True)
        )
        .targets(_targets([query], instant=False))
    )
    return panel.data_links([to]) if to is not None else panel


def rows(
    title: str,
    description: str,
    queries: Sequence[Query],
    columns: Sequence[BoardColumn],
    *,
    width: int = 24,
    height: int = 7,
    if_none: str,
) -> table.Panel:
    """A row for each set of labels, with the values of all queries side by side.

    Grafana names the values of several queries `Value #A`, `Value #B` and so on, and of a single one `Value`. Fields
    that no column names are hidden.
    """
    shown = {column.field: index for index, column in enumerate(columns)}
    panel = (
        table.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .span(width)
        .height(height)
        .unit("none")
        .no_value(if_none)
        .targets(_targets(queries, instant=True, as_table=True))
        .transformations(
            [
                models.DataTransformerConfig(id_val="merge", options={}),
                models.DataTransformerConfig(id_val="filterFieldsByName", options={"include": {"names": list(shown)}}),
                models.DataTransformerConfig(
                    id_val="organize", options={"excludeByName": {}, "indexByName": shown, "renameByName": {}}
                ),
            ]
        )
    )
    for column in columns:
        panel.override_by_name(column.field, _properties(column))
    return panel


def _properties(column: BoardColumn) -> list[models.DynamicConfigValue]:
    found = [
        models.DynamicConfigValue("displayName", column.title),
        models.DynamicConfigValue("unit", column.unit),
    ]
    if column.mappings:
        found.append(models.DynamicConfigValue("mappings", list(column.mappings)))
        found.append(models.DynamicConfigValue("custom.cellOptions", {"type": "color-text"}))
    if column.link is not None:
        found.append(models.DynamicConfigValue("links", [column.link.build()]))
    if column.width:
        found.append(models.DynamicConfigValue("custom.width", column.width))
    return found


def _targets(queries: Sequence[Query], *, instant: bool, as_table: bool = False) -> list[Builder[AnyQuery]]:
    made: list[Builder[AnyQuery]] = []
    for letter, query in zip("ABCDEFGH", queries, strict=False):
        target = Dataquery().ref_id(letter).expr(query.expr).legend_format(query.legend).interval(STEP)
        target.datasource(DATASOURCE)
        target.format(PromQueryFormat.TABLE if as_table else PromQueryFormat.TIME_SERIES)
        made.append(target.instant() if instant else target.range())
    return made


def _thresholds(steps: Steps) -> builders.ThresholdsConfig:
    made = [models.Threshold(value, color) for value, color in steps]
    return builders.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(made)


def _fixed(color: str) -> builders.FieldColor:
    return builders.FieldColor().mode(models.FieldColorModeId.FIXED).fixed_color(color)


def _color(color: str) -> models.DynamicConfigValue:
    return models.DynamicConfigValue("color", {"mode": "fixed", "fixedColor": color})
