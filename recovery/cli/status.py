"""`recovery status`: the workloads of a namespace, or of all, one line each; with `--watch` what changes of it."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NoReturn

import msgspec

from recovery.cli.connection import CommandError, Connection, chosen_namespace, complain, connect, error_words, execute
from recovery.cli.jobs import namespace_is_missing
from recovery.cli.rows import GONE, HEADER, WIDE_HEADER, JobRow, as_data, cells_of, rows_of
from recovery.cli.wording import Output, Table, print_data
from recovery.core.facts import GroupKey
from recovery.kube.oneshot import Fleet, read_fleet
from recovery.ports import TryLaterError

WATCH_SECONDS = 2.0
"""Between two readings of `--watch`."""

Rows = Mapping[GroupKey, JobRow]


def show_status(
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    *,
    all_namespaces: bool,
    output: Output,
    watch: bool,
) -> None:
    """Print the listing. Exit code 0, also when there is nothing to list; `watch` goes on until Ctrl-C."""
    execute(_status(kubeconfig, context, namespace, all_namespaces=all_namespaces, output=output, watch=watch))


async def _status(
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    *,
    all_namespaces: bool,
    output: Output,
    watch: bool,
) -> int:
    async with connect(kubeconfig, context) as connection:
        where = None if all_namespaces else await chosen_namespace(kubeconfig, context, namespace)
        fleet = await read_fleet(connection.client, where)
        said = _complain(fleet, ())
        rows = rows_of(fleet, connection.clock.now())
        if not rows and where is not None and await namespace_is_missing(connection.client, where):
            raise CommandError(f"there is no namespace {where!r}")
        if not rows:
            place = "in the cluster" if where is None else f"in namespace {where}"
            complain(f"no TrainJobs or JobSets {place}")
        if watch:
            await _watch(connection, where, _Changes(output, with_namespace=all_namespaces), rows, said)
        _print(rows, connection.clock.now(), output, with_namespace=all_namespaces)
    return 0


def _complain(fleet: Fleet, said: Sequence[str]) -> tuple[str, ...]:
    """Tell on stderr what keeps the listing from being all of it; what was said before is not said again."""
    pause = fleet.config.pause_words if fleet.config is not None else ""
    lines = tuple(dict.fromkeys((*fleet.unreadable, *((pause,) if pause else ()))))
    for line in lines:
        if line not in said:
            complain(line)
    return lines


def _print(rows: Rows, now: datetime, output: Output, *, with_namespace: bool) -> None:
    if output in {Output.JSON, Output.YAML}:
        print_data([as_data(row) for row in rows.values()], as_yaml=output is Output.YAML)
    elif rows:
        wide = output is Output.WIDE
        _table(wide=wide, with_namespace=with_namespace).print(
            cells_of(row, now, wide=wide, with_namespace=with_namespace) for row in rows.values()
        )


def _table(*, wide: bool, with_namespace: bool) -> Table:
    header = WIDE_HEADER if wide else HEADER
    return Table(("NAMESPACE", *header) if with_namespace else header)


class _Changes:
    """Prints rows that are new or different, as `kubectl get --watch` does."""

    def __init__(self, output: Output, *, with_namespace: bool) -> None:
        self._output = output
        self._wide = output is Output.WIDE
        self._with_namespace = with_namespace
        self._table = _table(wide=self._wide, with_namespace=with_namespace)
        self._known: Rows = {}

    def show(self, rows: Rows, now: datetime) -> None:
        gone = {key: msgspec.structs.replace(row, phase=GONE) for key, row in self._known.items() if key not in rows}
        changed = [row for key, row in {**rows, **gone}.items() if self._known.get(key) != row]
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
                cells_of(row, now, wide=self._wide, with_namespace=self._with_namespace) for row in changed
            )


async def _watch(
    connection: Connection, where: str | None, changes: _Changes, rows: Rows, said: Sequence[str]
) -> NoReturn:
    """Until Ctrl-C. An API server that is away for a while is told of once and asked again."""
    away = False
    while True:
        changes.show(rows, connection.clock.now())
        await connection.clock.sleep(WATCH_SECONDS)
        try:
            fleet = await read_fleet(connection.client, where)
        except TryLaterError as error:
            if not away:
                complain(f"{error_words(error)}; asking again")
            away = True
            continue
        away = False
        said = _complain(fleet, said)
        rows = rows_of(fleet, connection.clock.now())
