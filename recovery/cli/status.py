"""`recovery status`: lists the workloads of one or all namespaces, one line each. `--watch` then prints the changes."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NoReturn

import msgspec

from recovery.cli.arguments import ServerOptions
from recovery.cli.connection import CommandError, Connection, chosen_namespace, connect, error_words, execute
from recovery.cli.controller_lease import Leader, LeaderProbe
from recovery.cli.exit_codes import print_error
from recovery.cli.explain_kueue import NOT_READ, concerns_kueue, state_of
from recovery.cli.formatting import Output, print_data
from recovery.cli.job_lookup import namespace_is_missing
from recovery.cli.neighbour_versions import untested_versions
from recovery.cli.status_rows import (
    MEANT_TO_RUN,
    JobRow,
    as_data,
    by_need,
    cells_of,
    gone,
    rows_of,
    table,
    with_readiness,
)
from recovery.core.diagnosis.queued import queued_by
from recovery.core.model.enforce_estimate import EnforceEstimate, summed
from recovery.core.model.facts import GroupKey, WorkloadFacts
from recovery.core.model.protection import Protection
from recovery.core.policy.spec import Mode
from recovery.core.sentences import render
from recovery.kube.cluster_reader import read_fleet
from recovery.kube.kueue_workloads import read_kueue_workloads
from recovery.kube.unready_groups import read_unready_groups
from recovery.ports import TryLaterError
from recovery.report.enforce_words import enforce_sentence

WATCH_SECONDS = 2.0
"""The interval between readings of `--watch`."""

Rows = Mapping[GroupKey, JobRow]


class Only(msgspec.Struct, frozen=True):
    """Which jobs are listed: those in one of the requested states. None is requested: all jobs."""

    paused: bool = False
    suspended: bool = False

    def of(self, rows: Rows) -> Rows:
        return {key: row for key, row in rows.items() if self._has(row)}

    def words(self) -> str:
        """The requested states, in which no job is. Empty: all jobs are listed."""
        return " or ".join(word for word, asked in (("paused", self.paused), ("suspended", self.suspended)) if asked)

    def _has(self, row: JobRow) -> bool:
        if not (self.paused or self.suspended):
            return True
        return (self.paused and row.paused) or (self.suspended and row.suspended)


ALL_JOBS = Only()


def show_status(
    server: ServerOptions,
    namespace: str | None,
    *,
    all_namespaces: bool,
    output: Output,
    watch: bool,
    only: Only = ALL_JOBS,
) -> None:
    """Print the listing. Exit code 0, even if there is nothing to list. `watch`: print changes until Ctrl-C."""
    execute(_status(server, namespace, all_namespaces=all_namespaces, output=output, watch=watch, only=only))


async def _status(
    server: ServerOptions,
    namespace: str | None,
    *,
    all_namespaces: bool,
    output: Output,
    watch: bool,
    only: Only,
) -> int:
    async with connect(server) as connection:
        where = None if all_namespaces else await chosen_namespace(server, namespace)
        probe = LeaderProbe(connection.client, connection.clock)
        rows, lines = await _read(connection, where, probe)
        _complain((*lines, *await untested_versions(connection.client)), ())
        if not rows and where is not None and await namespace_is_missing(connection.client, where):
            raise CommandError(f"there is no namespace {where!r}")
        place = "in the cluster" if where is None else f"in namespace {where}"
        if not rows:
            print_error(f"no TrainJobs or JobSets {place}")
        elif not only.of(rows):
            print_error(f"no job {place} is {only.words()}")
        estimate = summed(row.enforce_estimate for row in only.of(rows).values() if row.mode != Mode.ENFORCE)
        if estimate.restarts and output in {Output.TABLE, Output.WIDE}:
            print_error(enforce_sentence(estimate))
        if watch:
            await _watch(connection, where, _Changes(output, only, with_namespace=all_namespaces), probe, rows, lines)
        _print(only.of(rows), connection.clock.now(), output, with_namespace=all_namespaces)
    return 0


async def _read(connection: Connection, where: str | None, probe: LeaderProbe) -> tuple[Rows, tuple[str, ...]]:
    """The rows, and lines about what could not be read and about what is true of all jobs.

    A job without an open incident is Healthy only if its whole group runs, or has run. Only Jobs and pods show that.
    """
    fleet = await read_fleet(connection.client, where)
    now = connection.clock.now()
    leader = await probe.leader()
    rows = rows_of(fleet, leader, now)
    asked = [key for key, row in rows.items() if row.phase in MEANT_TO_RUN]
    unready = await read_unready_groups(connection.client, where, fleet, asked, now)
    stop = fleet.config.stop if fleet.config is not None else None
    ready = with_readiness(rows, fleet, {**unready.snapshots, **unready.ready}, now)
    shown, about_kueue = await _with_kueue(connection, where, ready, fleet.workloads)
    lines = (
        *_about_leader(leader, shown),
        *fleet.unreadable,
        *unready.unreadable,
        *about_kueue,
        *((render(stop),) if stop is not None else ()),
    )
    return shown, tuple(dict.fromkeys(lines))


async def _with_kueue(
    connection: Connection, where: str | None, rows: Rows, workloads: Mapping[GroupKey, WorkloadFacts]
) -> tuple[Rows, tuple[str, ...]]:
    """The rows, with what Kueue says about those that it may have suspended, and why that could not be read."""
    asked = {key for key, row in rows.items() if row.phase == "Suspended" and concerns_kueue(workloads[key])}
    if not asked:
        return rows, ()
    reading = await read_kueue_workloads(connection.client, where)
    said = {key: reading.by_job.get(workloads[key].uid) for key in asked}
    found = {key: state_of(workload) for key, workload in said.items() if workload is not None}
    refused = reading.refused if any(queued_by(workloads[key]) for key in asked) else ""
    return (
        {key: msgspec.structs.replace(row, message=found.get(key, row.message)) for key, row in rows.items()},
        (f"{NOT_READ}: {refused}",) if refused else (),
    )


def _about_leader(leader: Leader, rows: Rows) -> tuple[str, ...]:
    """An unknown leader matters only if a row shows a job as protected."""
    if leader.leads is None and not any(row.protection.protected for row in rows.values()):
        return ()
    return (leader.words(),) if leader.words() else ()


def _complain(lines: Sequence[str], said: Sequence[str]) -> None:
    """Print the lines to stderr, without those that were printed before."""
    for line in lines:
        if line not in said:
            print_error(line)


def _print(rows: Rows, now: datetime, output: Output, *, with_namespace: bool) -> None:
    if output in {Output.JSON, Output.YAML}:
        print_data([as_data(row) for row in rows.values()], as_yaml=output is Output.YAML)
    elif rows:
        wide = output is Output.WIDE
        table(wide=wide, with_namespace=with_namespace).print(
            cells_of(row, now, wide=wide, with_namespace=with_namespace) for row in by_need(rows.values())
        )


class _Changes:
    """Prints rows that are new or different, as `kubectl get --watch` does."""

    def __init__(self, output: Output, only: Only, *, with_namespace: bool) -> None:
        self._output = output
        self._only = only
        self._wide = output is Output.WIDE
        self._with_namespace = with_namespace
        self._table = table(wide=self._wide, with_namespace=with_namespace)
        self._known: Rows = {}

    def show(self, every: Rows, now: datetime) -> None:
        """A row that is no longer one of those asked for is printed once more, in its current state."""
        rows = self._only.of(every)
        ended = {key: every.get(key) or gone(row) for key, row in self._known.items() if key not in rows}
        changed = [
            row for key, row in {**rows, **ended}.items() if self._shown(self._known.get(key)) != self._shown(row)
        ]
        self._known = rows
        if self._output is Output.JSON:
            for row in changed:
                print(json.dumps(as_data(row)), flush=True)
        elif self._output is Output.YAML:
            for row in changed:
                print("---", flush=True)
                print_data(as_data(row), as_yaml=True)
        elif changed:
            self._table.print(
                cells_of(row, now, wide=self._wide, with_namespace=self._with_namespace) for row in by_need(changed)
            )

    def _shown(self, row: JobRow | None) -> JobRow | None:
        """The row without the sentences. A scheduler rewords with each try why a pod has no node."""
        if row is None or self._output is not Output.TABLE:
            return row
        code = Protection(row.protection.reason, row.kind, row.job)
        return msgspec.structs.replace(row, reason="", message="", protection=code, enforce_estimate=EnforceEstimate())


async def _watch(
    connection: Connection,
    where: str | None,
    changes: _Changes,
    probe: LeaderProbe,
    rows: Rows,
    said: Sequence[str],
) -> NoReturn:
    """Print changes until Ctrl-C. If the API server does not answer, report this once and ask again."""
    away = False
    while True:
        changes.show(rows, connection.clock.now())
        await connection.clock.sleep(WATCH_SECONDS)
        try:
            rows, lines = await _read(connection, where, probe)
        except TryLaterError as error:
            if not away:
                print_error(f"{error_words(error)}; asking again")
            away = True
            continue
        away = False
        _complain(lines, said)
        said = lines
