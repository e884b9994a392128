"""The options of every command, and nothing else.

Each command is imported when it is called: the client of a cluster takes longer to load than `--help` may take.
"""
# ruff: noqa: PLC0415

from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from recovery.cli.arguments import (
    Address,
    parse_address,
    parse_seeds,
    parse_window,
)
from recovery.cli.chaos_commands import chaos
from recovery.cli.cluster_options import one_scope, runtime_source, server_options
from recovery.cli.completion import job_names, namespaces, recorded_job_names
from recovery.cli.extras import CommandGroup
from recovery.cli.formatting import AccountOutput, LaunchFormat, LintFormat, Output
from recovery.cli.lint_options import (
    ExplainedCode,
    FailingSeverity,
    FailOn,
    FromCluster,
    Ignored,
    Manifests,
    SkipOthers,
)
from recovery.cli.options import (
    AllNamespaces,
    Context,
    Jobs,
    Kubeconfig,
    Namespace,
    Nodes,
    RequestTimeout,
    WaitSeconds,
)
from recovery.cli.run_options import AdmissionAddress, AdmissionCertificates, AgentAddress
from recovery.report.formats import ReportFormat


def _typer(name: str, *, add_completion: bool) -> typer.Typer:
    return typer.Typer(
        name=name,
        cls=CommandGroup,
        help="Failure recovery for distributed TrainJobs on Kubernetes.",
        no_args_is_help=True,
        add_completion=add_completion,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


app = _typer("recovery", add_completion=True)


class LogLevel(StrEnum):
    """Log lines below this level are dropped."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """The format of log lines."""

    CONSOLE = "console"
    JSON = "json"


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"recovery {version('trainjob-recovery')}")
        raise typer.Exit


@app.callback()
def recovery(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """What every command has in common."""


@app.command("run")
def run(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    metrics_address: Annotated[
        Address,
        typer.Option(parser=parse_address, metavar="HOST:PORT", help="Address of /metrics, /healthz and /readyz."),
    ] = ":8080",  # type: ignore[assignment]
    log_level: LogLevel = LogLevel.INFO,
    log_format: Annotated[
        LogFormat | None,
        typer.Option(
            help="json: one object a line. Default: console where stderr is a terminal, else json.", show_default=False
        ),
    ] = None,
    lease_namespace: Annotated[
        str | None,
        typer.Option(metavar="NS", help="Namespace of the leader Lease. Default: the pod's or the context's."),
    ] = None,
    lease_seconds: Annotated[
        int, typer.Option(min=1, metavar="SECONDS", help="Another replica leads after a silence this long.")
    ] = 15,
    alone: Annotated[
        bool, typer.Option("--no-leader-election", help="Lead at once. Only if no other controller runs.")
    ] = False,
    admission_address: AdmissionAddress = None,
    admission_certificates: AdmissionCertificates = None,
    agent_address: AgentAddress = None,
) -> None:
    """Run the controller until a signal stops it."""
    from recovery.admission.settings import AdmissionSettings
    from recovery.cli.run import Election, LogSettings, run_controller
    from recovery.rendezvous.settings import AgentSettings

    if alone and lease_namespace is not None:
        raise typer.BadParameter("--no-leader-election and --lease-namespace exclude each other")
    if admission_address is None and admission_certificates is not None:
        raise typer.BadParameter("--admission-certificates needs --admission-address")
    election = None if alone else Election(lease_namespace, lease_seconds)
    admission = AdmissionSettings(*admission_address, admission_certificates) if admission_address is not None else None
    agents = AgentSettings(*agent_address) if agent_address is not None else None
    logs = LogSettings(log_level, log_format)
    run_controller(kubeconfig, context, metrics_address.host, metrics_address.port, logs, election, admission, agents)


@app.command("status")
def status(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    request_timeout: RequestTimeout = None,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TABLE,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep running, and print changes.")] = False,
    paused: Annotated[bool, typer.Option("--paused", help="Only paused jobs.")] = False,
    suspended: Annotated[bool, typer.Option("--suspended", help="Only suspended jobs.")] = False,
) -> None:
    """List jobs and their state."""
    from recovery.cli.status import Only, show_status

    one_scope(namespace, all_namespaces=all_namespaces)
    show_status(
        server_options(kubeconfig, context, request_timeout),
        namespace,
        all_namespaces=all_namespaces,
        output=output,
        watch=watch,
        only=Only(paused, suspended),
    )


@app.command("explain")
def explain(
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB",
            help="Name of a TrainJob or a bare JobSet.",
            show_default=False,
            autocompletion=job_names,
        ),
    ],
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    request_timeout: RequestTimeout = None,
    namespace: Namespace = None,
    incident: Annotated[str | None, typer.Option(metavar="ID", help="Show this incident only.")] = None,
    output: Annotated[AccountOutput, typer.Option("--output", "-o", help="Output format.")] = AccountOutput.TEXT,
) -> None:
    """Show what is decided about a job, and why."""
    from recovery.cli.explain import show_explanation

    show_explanation(server_options(kubeconfig, context, request_timeout), namespace, job, incident, output)


@app.command("report")
def report(
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="JOB",
            help="Name of a TrainJob or a bare JobSet, deleted or not.",
            show_default=False,
            autocompletion=recorded_job_names,
        ),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    request_timeout: RequestTimeout = None,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NS",
            help="Default: the namespace of the context; with --fleet all namespaces.",
            autocompletion=namespaces,
        ),
    ] = None,
    incident: Annotated[str | None, typer.Option(metavar="ID", help="Report on this incident only.")] = None,
    fleet: Annotated[bool, typer.Option("--fleet", help="Report on all jobs.")] = False,
    since: Annotated[
        timedelta | None,
        typer.Option(
            parser=parse_window, metavar="DURATION", help="With --fleet: how far back, like 7d or 12h. Default: 7d."
        ),
    ] = None,
    output: Annotated[ReportFormat, typer.Option("--output", "-o", help="Output format.")] = ReportFormat.MD,
) -> None:
    """Show what incidents cost and what was done about them, even if the job has been deleted."""
    from recovery.cli.report import DEFAULT_WINDOW, report_on_fleet, report_on_job

    if fleet:
        if job is not None or incident is not None:
            raise typer.BadParameter("--fleet reports on all jobs: leave JOB and --incident out")
        report_on_fleet(
            server_options(kubeconfig, context, request_timeout), namespace, since or DEFAULT_WINDOW, output
        )
    elif job is None:
        raise typer.BadParameter("name a job, or use --fleet for all jobs")
    elif since is not None:
        raise typer.BadParameter("--since is only for --fleet: leave it out, or replace JOB by --fleet")
    else:
        report_on_job(server_options(kubeconfig, context, request_timeout), namespace, job, incident, output)


@app.command("pause")
def pause(
    jobs: Jobs,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    request_timeout: RequestTimeout = None,
    namespace: Namespace = None,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why. Shown with the pause.")] = None,
) -> None:
    """Pause the controller for jobs."""
    from recovery.cli.pause import pause as pause_jobs

    if reason is not None and reason.strip() in {"", "false"}:
        raise typer.BadParameter(f"{reason!r} would not pause anything; say why, or leave --reason out")
    pause_jobs(server_options(kubeconfig, context, request_timeout), namespace, jobs, reason)


@app.command("resume")
def resume(
    jobs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="JOB",
            help="Names of TrainJobs or bare JobSets.",
            show_default=False,
            autocompletion=job_names,
        ),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    request_timeout: RequestTimeout = None,
    namespace: Namespace = None,
    all_: Annotated[
        bool,
        typer.Option("--all", help="Release each suspension by the controller. Jobs that users paused stay paused."),
    ] = False,
    all_namespaces: AllNamespaces = False,
) -> None:
    """End a pause, or the suspension of a job."""
    from recovery.cli.pause import resume as resume_jobs
    from recovery.cli.pause import resume_all

    if bool(jobs) == all_:
        raise typer.BadParameter("name jobs, or say --all")
    if all_namespaces and not all_:
        raise typer.BadParameter("--all-namespaces goes with --all")
    one_scope(namespace, all_namespaces=all_namespaces)
    if jobs:
        resume_jobs(server_options(kubeconfig, context, request_timeout), namespace, jobs)
    else:
        resume_all(server_options(kubeconfig, context, request_timeout), namespace, all_namespaces=all_namespaces)


@app.command("restart")
def restart(
    jobs: Jobs,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Why. Shown in the incident, in Events and in the record.")
    ],
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    request_timeout: RequestTimeout = None,
    namespace: Namespace = None,
    force: Annotated[bool, typer.Option("--force", help="Also in mode Observe, and if the job is paused.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    wait: WaitSeconds = 15.0,
) -> None:
    """Recreate all pods of jobs now."""
    from recovery.cli.requests import RequestOptions, send_requests
    from recovery.core.incident.requests import Verb

    if not reason.strip():
        raise typer.BadParameter("--reason must not be empty")
    send_requests(
        server_options(kubeconfig, context, request_timeout),
        namespace,
        jobs,
        RequestOptions(Verb.RESTART, reason, force, confirmed=yes, wait_seconds=wait),
    )


@app.command("retry")
def retry(
    jobs: Jobs,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    request_timeout: RequestTimeout = None,
    namespace: Namespace = None,
    wait: WaitSeconds = 15.0,
) -> None:
    """Leave Held or Backoff now, or restart a Broken group."""
    from recovery.cli.requests import RequestOptions, send_requests
    from recovery.core.incident.requests import Verb

    send_requests(
        server_options(kubeconfig, context, request_timeout),
        namespace,
        jobs,
        RequestOptions(Verb.RETRY, wait_seconds=wait),
    )


@app.command("reset-budget")
def reset_budget(
    jobs: Jobs,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    request_timeout: RequestTimeout = None,
    namespace: Namespace = None,
    wait: WaitSeconds = 15.0,
) -> None:
    """Forget the charges to a budget so far."""
    from recovery.cli.requests import RequestOptions, send_requests
    from recovery.core.incident.requests import Verb

    send_requests(
        server_options(kubeconfig, context, request_timeout),
        namespace,
        jobs,
        RequestOptions(Verb.RESET_BUDGET, wait_seconds=wait),
    )


@app.command("quarantine")
def quarantine(
    nodes: Nodes,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why. Stored on the node.")],
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    request_timeout: RequestTimeout = None,
) -> None:
    """Keep new pods off nodes until they are released. `recovery nodes` lists them."""
    from recovery.cli.quarantine import quarantine as quarantine_nodes

    if not reason.strip():
        raise typer.BadParameter("--reason must not be empty")
    quarantine_nodes(server_options(kubeconfig, context, request_timeout), nodes, reason)


@app.command("release")
def release(
    nodes: Nodes, kubeconfig: Kubeconfig = None, context: Context = None, request_timeout: RequestTimeout = None
) -> None:
    """End the quarantine of nodes."""
    from recovery.cli.quarantine import release as release_nodes

    release_nodes(server_options(kubeconfig, context, request_timeout), nodes)


@app.command("nodes")
def nodes(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    request_timeout: RequestTimeout = None,
    output: Annotated[AccountOutput, typer.Option("--output", "-o", help="Output format.")] = AccountOutput.TEXT,
) -> None:
    """List quarantined and suspected nodes, and why."""
    from recovery.cli.nodes import show_nodes

    show_nodes(server_options(kubeconfig, context, request_timeout), output)


@app.command("reset-breaker")
def reset_breaker(
    kubeconfig: Kubeconfig = None, context: Context = None, request_timeout: RequestTimeout = None
) -> None:
    """Close the circuit breaker, so that policies in mode Enforce act again."""
    from recovery.cli.quarantine import reset_breaker as reset

    reset(server_options(kubeconfig, context, request_timeout))


@app.command("lint")
def lint(
    files: Manifests,
    output: Annotated[LintFormat, typer.Option("--format", help="Output format.")] = LintFormat.TEXT,
    fail_on: FailingSeverity = FailOn.ERROR,
    ignore: Ignored = None,
    skip_others: SkipOthers = False,
    cluster: FromCluster = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    request_timeout: RequestTimeout = None,
    namespace: Namespace = None,
    _explain: ExplainedCode = None,
) -> None:
    """Show what is wrong with jobs and runtimes before they start, and with policies before they are applied."""
    from recovery.cli.lint import LintOptions, show_lint

    options = LintOptions(output, fail_on, frozenset(ignore or ()), skip_others)
    show_lint(files, options, runtime_source(kubeconfig, context, request_timeout, namespace, asked=cluster))


@app.command("explain-launch")
def explain_launch(
    files: Manifests,
    job: Annotated[str | None, typer.Option(metavar="NAME", help="Show this one only.", show_default=False)] = None,
    output: Annotated[LaunchFormat, typer.Option("--format", help="Output format.")] = LaunchFormat.TEXT,
    log_level: Annotated[LogLevel, typer.Option(help="debug: each decision is a line on stderr.")] = LogLevel.INFO,
    cluster: FromCluster = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    request_timeout: RequestTimeout = None,
    namespace: Namespace = None,
) -> None:
    """Show the settings with which a job would start, what set each, and what a failure would do to it."""
    from recovery.cli.explain_launch import show_launch

    show_launch(
        files, job, output, log_level, runtime_source(kubeconfig, context, request_timeout, namespace, asked=cluster)
    )


@app.command("simulate")
def simulate(
    seed: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="The trial of this seed, and its timeline.")
    ] = None,
    seeds: Annotated[
        range | None, typer.Option(parser=parse_seeds, metavar="A-B", help="The trials of all these seeds.")
    ] = None,
    scenario: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The trial that this YAML file describes (docs/simulation.md).")
    ] = None,
    shrink: Annotated[
        bool, typer.Option("--shrink", help="Find the fewest faults that still break the same invariant.")
    ] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="With --seeds: processes. Default: one for each core.")
    ] = None,
    coverage: Annotated[bool, typer.Option("--coverage", help="Also list what the trials covered.")] = False,
) -> None:
    """Try the controller against faults in a cluster in memory: in virtual time, the same for the same seed."""
    if sum(chosen is not None for chosen in (seed, seeds, scenario)) != 1:
        raise typer.BadParameter("say one of --seed, --seeds and --scenario")
    if workers is not None and seeds is None:
        raise typer.BadParameter("--workers goes with --seeds")
    from recovery.cli import simulate as simulation

    if seed is not None:
        simulation.simulate_seed(seed, shrinking=shrink, coverage=coverage)
    elif seeds is not None:
        simulation.simulate_seeds(seeds, workers=workers, shrinking=shrink, coverage=coverage)
    elif scenario is not None:
        simulation.simulate_scenario(scenario, shrinking=shrink, coverage=coverage)


app.add_typer(chaos)


plugin = _typer("kubectl recovery", add_completion=False)
"""The same commands for kubectl, which completes words for its plugins itself (`recovery.cli.plugin`)."""
plugin.registered_commands = app.registered_commands
plugin.registered_groups = app.registered_groups
plugin.registered_callback = app.registered_callback
