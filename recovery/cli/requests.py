"""`recovery restart`, `retry` and `reset-budget`: a request to the controller, and its answer.

The request is an annotation (`core.incident.requests`), so the leader sees it even after a crash. Before the command
writes it, it applies the controller's own decision to the current objects. A request that the controller would refuse
is refused at once, with the same sentence, even if no controller runs.
"""

import asyncio
import getpass
import os
import sys
from collections.abc import Sequence

import msgspec

from recovery import api_verbs
from recovery.cli.applied_policy import AppliedPolicy, policy_of
from recovery.cli.arguments import ServerOptions
from recovery.cli.connection import CommandError, Connection, chosen_namespace, connect, execute
from recovery.cli.controller_lease import holder_words
from recovery.cli.exit_codes import EXIT_FAILURE, print_error
from recovery.cli.formatting import time_of_day
from recovery.cli.job_lookup import absence, title_of
from recovery.cli.several_jobs import attempted
from recovery.cli.status_rows import ledger_problem
from recovery.core.decision.decide import decide
from recovery.core.incident.requests import ANNOTATIONS, EXPIRES_AFTER, Request, Verb, encode
from recovery.core.model.facts import GroupKey, WorkloadFacts
from recovery.core.model.ledger import Ledger, Phase
from recovery.core.model.reason import Reason, because
from recovery.core.model.request_answer import RequestAnswer
from recovery.core.sentences import render
from recovery.kube.cluster_reader import JobReading, read_job
from recovery.kube.kubeconfig import context_user
from recovery.kube.live_reader import LiveReader
from recovery.ports import PatchKind, TryLaterError
from recovery.workloads import resource_of

_POLL_SECONDS = 0.5
"""The interval between reads of the answer."""


class RequestOptions(msgspec.Struct, frozen=True):
    """The request to every named job."""

    verb: Verb
    reason: str = ""
    force: bool = False
    confirmed: bool = True
    """False: a person at a terminal is asked first."""
    wait_seconds: float = 15.0
    """How long to wait for the answer. 0: do not wait."""


class _RequestTarget(msgspec.Struct, frozen=True):
    """A job that the request goes to."""

    key: GroupKey
    workload: WorkloadFacts
    pods: int
    gpus: int

    @property
    def title(self) -> str:
        return title_of(self.key, self.workload)


def send_requests(server: ServerOptions, namespace: str | None, jobs: Sequence[str], options: RequestOptions) -> None:
    """Write the requests and print the answers. Exit code 1: one of them was refused, or got no answer in time."""
    execute(_send_requests(server, namespace, jobs, options))


async def _send_requests(
    server: ServerOptions, namespace: str | None, jobs: Sequence[str], options: RequestOptions
) -> int:
    async with connect(server) as connection:
        where = await chosen_namespace(server, namespace)
        by = await context_user(server.kubeconfig, server.context) or login()
        now = connection.clock.now()
        request = Request(at=now, reason=options.reason, by=by, force=options.force)
        keys = [GroupKey(where, name) for name in dict.fromkeys(jobs)]
        prepared = [await attempted(key, _prepare(connection, key, options.verb, request)) for key in keys]
        accepted = [each for each in prepared if isinstance(each, _RequestTarget)]
        code = EXIT_FAILURE if None in prepared else 0
        if not accepted:
            return code
        if not options.confirmed and sys.stdin.isatty() and not _confirmed(accepted):
            print_error("nothing was asked for")
            return EXIT_FAILURE
        answers = await asyncio.gather(
            *(attempted(each.key, _put(connection, each, options, request)) for each in accepted)
        )
        return code if all(answers) else EXIT_FAILURE


def login() -> str:
    """The name of this machine's user, or `uid 65532` if the user has no name, as in a container."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # KeyError: before Python 3.13
        return f"uid {os.getuid()}"


async def _prepare(connection: Connection, key: GroupKey, verb: Verb, request: Request) -> _RequestTarget | str:
    """The job, if nothing seems to prevent the request. A string: there is nothing to do. Raises CommandError."""
    reading = await read_job(connection.client, key)
    for line in reading.unreadable:
        print_error(line)
    workload = reading.snapshot.workload
    if workload is None:
        raise await absence(connection.client, key, reading.snapshot.undecodable)
    title = title_of(key, workload)
    if problem := ledger_problem(reading.group):
        raise CommandError(f"{title}: {problem}, so nothing would act on the request")
    ledger = reading.group.ledger if reading.group is not None else Ledger()
    state = ledger.budget
    if verb is Verb.RESET_BUDGET and not (state.charges or state.adopted or ledger.attempts_in_row):
        print(f"{title}: nothing has been charged, so there is nothing to reset")
        return "nothing to do"
    if verb is Verb.RETRY and not _holds_back(ledger):
        nothing = render(because(Reason.NOTHING_HELD_BACK, phase=ledger.phase))
        raise CommandError(f"{title}: {verb} is refused: {nothing}")
    selection = policy_of(reading.policies, workload)
    if selection.error is not None:
        raise CommandError(f"{title}: {verb} is refused: {selection.error}, so nothing would act on the request")
    if selection.policy is None and not reading.unreadable:  # a policy that the user may not read can apply
        why = f"no policy applies to it ({selection.why})"
        raise CommandError(f"{title}: {verb} is refused: {why}, so nothing would act on the request")
    why_not = _refusal(reading, workload, ledger, selection, verb, request)
    if why_not is not None:
        raise CommandError(f"{title}: {verb} is refused: {why_not}")
    pods = reading.snapshot.pods
    return _RequestTarget(key, workload, len(pods), sum(pod.gpus for pod in pods if pod.node))


def _refusal(
    reading: JobReading, workload: WorkloadFacts, ledger: Ledger, selection: AppliedPolicy, verb: Verb, request: Request
) -> str | None:
    """Why the controller would refuse the request now. None: it would not, or it must do something else first."""
    if workload.condition("Failed") is not None:
        return f"the {workload.kind} has failed"
    others = {name: value for name, value in workload.annotations.items() if name not in ANNOTATIONS.values()}
    asked = msgspec.structs.replace(workload, annotations={**others, ANNOTATIONS[verb]: encode(request)})
    snapshot = msgspec.structs.replace(reading.snapshot, workload=asked)
    answer = _answer(decide(snapshot, ledger, selection.decides, request.at).ledger, verb, request)
    return answer.message if answer is not None and not answer.accepted else None


def _holds_back(ledger: Ledger) -> bool:
    open_ = ledger.incident
    if ledger.broken is not None:
        return open_ is None or open_.closing is not None
    return open_ is not None and (ledger.phase in {Phase.HELD, Phase.BACKOFF} or open_.suspension is not None)


def _answer(ledger: Ledger, verb: Verb, request: Request) -> RequestAnswer | None:
    return next((each for each in ledger.requests if (each.verb, each.at) == (verb, request.at)), None)


def _confirmed(jobs: Sequence[_RequestTarget]) -> bool:
    for each in jobs:
        print_error(f"{each.title}: all {each.pods} pods on {each.gpus} GPUs will be deleted and start together again")
    print("Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


async def _put(connection: Connection, job: _RequestTarget, options: RequestOptions, request: Request) -> bool:
    """Write the request, wait for the answer and print it. True: the request was accepted, or no answer was awaited."""
    body = {"metadata": {"uid": job.workload.uid, "annotations": {ANNOTATIONS[options.verb]: encode(request)}}}
    resource = resource_of(job.workload)
    await api_verbs.patch(
        connection.client, resource, job.key.name, body, kind=PatchKind.MERGE, namespace=job.key.namespace
    )
    if not options.wait_seconds:
        print(f"{job.title}: {options.verb} is requested; `recovery explain {job.key.name}` shows the answer")
        return True
    answer = await _wait(connection, job, options, request)
    if answer is None:
        silence = await holder_words(connection.client)
        stands = time_of_day(request.at + EXPIRES_AFTER, request.at)
        print_error(
            f"{job.title}: no answer to {options.verb} within {options.wait_seconds:g} s: is a controller running? "
            f"{silence}; the request stands until {stands}"
        )
        return False
    if not answer.accepted:
        print_error(f"{job.title}: {options.verb} is refused: {answer.message}")
        return False
    print(f"{job.title}: {answer.message}", flush=True)
    return True


async def _wait(
    connection: Connection, job: _RequestTarget, options: RequestOptions, request: Request
) -> RequestAnswer | None:
    """The answer. None: none came in time."""
    reader = LiveReader(connection.client)
    deadline = connection.clock.monotonic_seconds() + options.wait_seconds
    while True:
        try:
            group = await reader.ledger(job.key, job.workload.uid)
        except TryLaterError:
            group = None
        answer = _answer(group.ledger, options.verb, request) if group is not None else None
        left = deadline - connection.clock.monotonic_seconds()
        if answer is not None or left <= 0:
            return answer
        await connection.clock.sleep(min(_POLL_SECONDS, left))
