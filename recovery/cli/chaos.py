"""`recovery chaos`: runs an experiment on a job, lists drills, and ends them.

Nothing is done before the person has named the cluster. From then on Ctrl-C takes everything back.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

import msgspec

from recovery.chaos.abort import abort, read_drills
from recovery.chaos.chaos_run import ChaosRun, Note, RunOutcome
from recovery.chaos.drill_record import drill_name
from recovery.chaos.junit import junit_xml
from recovery.chaos.run_plan import RunPlan, plan_lines, planned
from recovery.chaos.tools import ChaosRefusedError, ChaosTools, ProcessKiller
from recovery.cli.arguments import ServerOptions
from recovery.cli.chaos_probe import StatusProbe
from recovery.cli.chaos_report import EXIT_CODES, case_lines, drill_lines, drills_data, left_words, outcome_data
from recovery.cli.connection import CommandError, Connection, chosen_namespace, connect, error_words, execute
from recovery.cli.exit_codes import EXIT_FAILURE, EXIT_USAGE, print_error
from recovery.cli.formatting import ChaosOutput, DrillsOutput, print_data, printable
from recovery.cli.requests import login
from recovery.cli.scenario_file import read_scenario_file
from recovery.core.model.facts import GroupKey
from recovery.kube.exec import ProcessKillerByExec
from recovery.kube.kubeconfig import context_name, context_user
from recovery.kube.session import SessionError
from recovery.ports import ApiError, RefusedError
from recovery.program import EXIT_INTERRUPTED
from recovery.scenario.experiment import Experiment, read_experiment

CLUSTER_OF_THE_POD = "kubernetes.default.svc"
"""What a pod may call its own cluster. It has no context, and the address of its server differs between clusters."""


class ChaosOptions(msgspec.Struct, frozen=True):
    """How an experiment is run."""

    dry_run: bool = False
    """Show the plan, and do nothing."""
    yes: str | None = None
    """The name of the cluster, which answers the question for it. None: a person at a terminal is asked."""
    output: ChaosOutput = ChaosOutput.TABLE


class _NoExec:
    """`ProcessKiller` of a connection without a session."""

    async def kill(self, namespace: str, pod: str, container: str) -> str:
        raise RefusedError(f"pod {namespace}/{pod}: this connection cannot run a command in {container}")


def run_chaos(server: ServerOptions, namespace: str | None, path: Path, options: ChaosOptions) -> NoReturn:
    """Run the experiment of the file. Exit code 0: Passed. 1: Failed. 2: it was not run, or not to its end."""
    experiment = read_scenario_file(path, read_experiment)
    execute(_run(server, namespace, experiment, options))


async def _run(server: ServerOptions, namespace: str | None, experiment: Experiment, options: ChaosOptions) -> int:
    """Exit code 1 is that of a verdict alone, so every other problem is 2."""
    try:
        async with connect(server) as connection:
            where = experiment.namespace or await chosen_namespace(server, namespace)
            if namespace not in (None, where):
                print_error(f"target.job is in namespace {where}, and -n says {namespace}; leave -n out")
                return EXIT_USAGE
            return await _run_on(connection, server, GroupKey(where, experiment.job), experiment, options)
    except ChaosRefusedError as refused:
        for problem in refused.problems:
            print_error(problem)
    except (CommandError, SessionError) as error:
        print_error(str(error))
    except ApiError as error:
        print_error(error_words(error))
    return EXIT_USAGE


async def _run_on(
    connection: Connection, server: ServerOptions, key: GroupKey, experiment: Experiment, options: ChaosOptions
) -> int:
    tools = _tools(connection, key)
    plan = await planned(tools, experiment)
    context = await context_name(server.kubeconfig, server.context)
    people = sys.stdout if options.output is ChaosOutput.TABLE else sys.stderr
    for line in (*plan.state.unreadable, *plan_lines(plan, experiment, connection.server, context)):
        print(printable(line), file=people, flush=True)
    if options.dry_run:
        return 0
    if not _agreed(options.yes, names_of_cluster(connection.server, context)):
        return EXIT_USAGE
    by = await context_user(server.kubeconfig, server.context) or login()
    name = drill_name(experiment.name, connection.entropy)

    def note(seconds: float, text: str) -> None:
        print(f"{seconds:7.1f}s  {printable(text)}", file=people, flush=True)

    outcome = await _interruptible(tools, experiment, plan, name, by, note)
    _print_outcome(outcome, experiment, key, options.output)
    return _exit_code(outcome)


def _tools(connection: Connection, key: GroupKey) -> ChaosTools:
    killer: ProcessKiller = _NoExec()
    if connection.session is not None:
        killer = ProcessKillerByExec(connection.session)
    probe = StatusProbe(connection.client, connection.clock, key)
    return ChaosTools(connection.client, connection.clock, connection.entropy, killer, probe)


# The question.


def names_of_cluster(server: str, context: str) -> tuple[str, ...]:
    """What a person may call the cluster. The first one is shown. `context` empty: there is none, as in a pod."""
    parts = urlsplit(server)
    found = (context or CLUSTER_OF_THE_POD, parts.hostname or "", parts.netloc, server)
    return tuple(dict.fromkeys(name for name in found if name))


def _agreed(yes: str | None, names: Sequence[str]) -> bool:
    """A person has named this cluster: a wrong context is the costliest mistake here."""
    if yes is not None:
        if yes in names:
            return True
        print_error(f"--yes names cluster {yes!r}, and this is {names[0]!r}; nothing was done")
        return False
    if not sys.stdin.isatty():
        print_error(
            f"a person has to agree at a terminal, or say --yes CLUSTER, here --yes {names[0]}; nothing was done"
        )
        return False
    with _terminated_as_interrupted():
        print(f"Type the name of the cluster to go on ({names[0]}): ", end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline().strip()
    if answer in names:
        return True
    print_error(f"{answer!r} is not the name of the cluster; nothing was done")
    return False


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """While the terminal is read, SIGTERM does what Ctrl-C does. The event loop handles no signal then."""
    before = signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# The run.


async def _interruptible(
    tools: ChaosTools, experiment: Experiment, plan: RunPlan, name: str, by: str, note: Note
) -> RunOutcome:
    run = ChaosRun(tools, experiment, plan, name=name, started_by=by, note=note)
    task = asyncio.create_task(run.run())
    with _interrupting(task, abort_command(plan.state.key.namespace, name)):
        return await task


@contextmanager
def _interrupting(task: "asyncio.Task[RunOutcome]", command: str) -> Iterator[None]:
    """The first SIGINT or SIGTERM interrupts the run, which takes back what it has changed. The second one ends the
    process at once."""
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    came = False

    def stop() -> None:
        nonlocal came
        if came:
            print_error(f"interrupted again; what is left is taken back by: {command}")
            sys.stdout.flush()
            os._exit(EXIT_INTERRUPTED)
        came = True
        print_error("interrupted; taking back what the run has changed (again: leave at once)")
        task.cancel()

    for number in before:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


def abort_command(namespace: str, name: str) -> str:
    return f"recovery chaos abort {name} -n {namespace}"


# The result.


def _print_outcome(outcome: RunOutcome, experiment: Experiment, key: GroupKey, output: ChaosOutput) -> None:
    if output is ChaosOutput.JUNIT:
        print(junit_xml(outcome, experiment.name, str(key), experiment.repeat), flush=True)
    elif output in {ChaosOutput.JSON, ChaosOutput.YAML}:
        print_data(outcome_data(outcome, experiment.name, str(key)), as_yaml=output is ChaosOutput.YAML)
    else:
        for line in case_lines(outcome.cases):
            print(printable(line), flush=True)
        print(printable(f"{outcome.verdict}: {outcome.verdict_message}"), flush=True)
    # The message of a RefusedError is that of the verdict.
    if outcome.error is not None and not isinstance(outcome.error, RefusedError):
        print_error(error_words(outcome.error))
    for left in outcome.left_over:
        print_error(f"{left_words(left)}; run {abort_command(key.namespace, outcome.drill)}")


def _exit_code(outcome: RunOutcome) -> int:
    if outcome.interrupted:
        return EXIT_INTERRUPTED
    if outcome.left_over:
        return EXIT_USAGE
    return EXIT_CODES[outcome.verdict]


# The other commands.


def list_chaos(server: ServerOptions, namespace: str | None, output: DrillsOutput, *, all_namespaces: bool) -> NoReturn:
    """Print the drills. Exit code 0, even if there is none."""
    execute(_list(server, namespace, output, all_namespaces=all_namespaces))


async def _list(server: ServerOptions, namespace: str | None, output: DrillsOutput, *, all_namespaces: bool) -> int:
    async with connect(server) as connection:
        where = None if all_namespaces else await chosen_namespace(server, namespace)
        drills = await read_drills(connection.client, where)
        now = connection.clock.now()
    if output is not DrillsOutput.TABLE:
        print_data(drills_data(drills, now), as_yaml=output is DrillsOutput.YAML)
    elif drills:
        for line in drill_lines(drills, now, with_namespace=all_namespaces):
            print(printable(line), flush=True)
    else:
        print_error(f"no drills {'in the cluster' if where is None else f'in namespace {where}'}")
    return 0


def abort_chaos(server: ServerOptions, namespace: str | None, name: str | None) -> NoReturn:
    """End the run, or all runs (`name` None), and take back what they have changed. `namespace` None with a name: that
    of the context; without a name: all namespaces."""
    execute(_abort(server, namespace, name))


async def _abort(server: ServerOptions, namespace: str | None, name: str | None) -> int:
    async with connect(server) as connection:
        where = namespace if name is None else await chosen_namespace(server, namespace)
        done = await abort(connection.client, connection.clock, where, name)
    for drill in done.ended:
        print(f"drill {drill}: ended", flush=True)
    for node in done.freed:
        print(f"node {node}: put back", flush=True)
    for left in done.left_over:
        print_error(left_words(left))
    if done.left_over:
        return EXIT_FAILURE
    if name is not None and not done.known:
        raise CommandError(f"there is no drill {name!r} in namespace {where}, and no node has a mark of it")
    if not done.ended and not done.freed:
        print("nothing is left to take back", flush=True)
    return 0
