"""kopf, reduced to an HTTPS server that finds each webhook by its path.

It has no create or update handlers, because those annotate the objects. It watches nothing, because it would miss
deletions while a watch is interrupted. It manages no webhook configuration. It only sends a few discovery requests at
the start, for which it borrows our connection pool and credentials.

No object is refused because of a bug of ours: an unexpected exception of a webhook is logged, and the object admitted.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import kopf
import structlog

from recovery.admission.accepted import in_one_line
from recovery.admission.births import SettingsAtBirth
from recovery.admission.https_server import REQUEST_NAMESPACE, HttpsServer
from recovery.admission.launches import (
    LAUNCHES,
    asks_to_be_prepared,
    changed,
    changes_of,
    record_of,
    verdict_of,
)
from recovery.admission.objects import JUDGED, JudgedObject, from_request
from recovery.admission.reviews import UNPROCESSABLE, Reviewed, ReviewOutcome
from recovery.admission.runtimes import Runtimes
from recovery.admission.verdict import AdmissionVerdict
from recovery.kube.session import USER_AGENT, Session
from recovery.launch.birth import born, of_job_set
from recovery.ports import JOBS, TRAIN_JOBS, Resource

CERTIFICATE_RECONCILE_SECONDS = 10.0
"""Between checks for a new certificate on disk."""

PREPARE_PATH = "prepare-trainjobs"
"""Path of the webhook that changes TrainJobs whose owners ask for it."""

_log = structlog.get_logger("recovery.admission")

Judge = Callable[[JudgedObject], AdmissionVerdict]

WEBHOOKS = (*(resource.plural for resource in (*JUDGED, *LAUNCHES)), PREPARE_PATH, JOBS.plural)
"""The path of each webhook."""
_PLURALS = {path: path for path in WEBHOOKS} | {PREPARE_PATH: TRAIN_JOBS.plural}
"""By path, the resource that it is for."""


def not_counted(_webhook: str, _outcome: ReviewOutcome) -> None:
    """For callers that need no metrics."""


async def serve_webhooks(
    judge: Judge,
    runtimes: Runtimes,
    births: SettingsAtBirth,
    session: Session,
    *,
    host: str,
    port: int,
    certificate: Path,
    key: Path,
    listening: Callable[[bool], None],
    reviewed: Reviewed,
    stop: asyncio.Event,
) -> None:
    """Serve until `stop` is set. `certificate` and `key` may be one file. Changed files are loaded again.

    `listening` is called when the server begins to listen and when it has ended. Raises whatever ends kopf.
    """
    _quieten()
    kopf_stop = asyncio.Event()

    def listens(now: bool) -> None:
        if not now:
            # When the server has failed, kopf waits 5 s for its own task that waits for the flag, unless it is set.
            kopf_stop.set()
        listening(now)

    settings = kopf.OperatorSettings()
    settings.admission.server = HttpsServer(
        listens,
        plurals=_PLURALS,
        reviewed=reviewed,
        host=host,
        port=port,
        certificate=certificate,
        key=key,
        check_seconds=CERTIFICATE_RECONCILE_SECONDS,
    )
    settings.posting.enabled = False
    settings.scanning.disabled = True  # else it watches all CRDs and namespaces
    # Otherwise kopf sends SIGKILL ten minutes after it has failed, and that kills the whole process.
    settings.process.ultimate_exiting_timeout = None
    # Only peers see it, and a standalone operator has none. Without it kopf looks up the name of the user, which raises
    # KeyError in a container, where the UID has no passwd entry.
    identity: Any = USER_AGENT
    stopping = asyncio.create_task(_pass_on(stop, kopf_stop))
    try:
        await kopf.operator(
            registry=_registry(judge, runtimes, births, session, reviewed),
            settings=settings,
            identity=identity,
            standalone=True,
            clusterwide=True,
            stop_flag=kopf_stop,
        )
    finally:
        stopping.cancel()


async def _pass_on(stop: asyncio.Event, kopf_stop: asyncio.Event) -> None:
    await stop.wait()
    kopf_stop.set()


def _registry(
    judge: Judge, runtimes: Runtimes, births: SettingsAtBirth, session: Session, reviewed: Reviewed
) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()
    logins = 0

    async def login(**_: Any) -> kopf.AiohttpSession:
        nonlocal logins
        if logins:  # the credentials were not accepted
            await session.refresh(session.credentials_version)
        logins += 1
        return kopf.AiohttpSession(server=session.server, aiohttp_session=_borrow(session))

    kopf.on.login(registry=registry)(login)
    reviews = {resource: _policy_review(resource, judge) for resource in JUDGED}
    reviews |= {resource: _launch_review(resource, runtimes) for resource in LAUNCHES}
    for resource, review in reviews.items():
        kopf.on.validate(
            resource.group,
            resource.version,
            resource.plural,
            id=resource.plural,  # also the path
            operations=["CREATE", "UPDATE"],
            registry=registry,
        )(_never_in_the_way(resource, resource.plural, review, reviewed))
    changes = {PREPARE_PATH: (TRAIN_JOBS, _preparation(runtimes)), JOBS.plural: (JOBS, _birth(births))}
    for path, (resource, change) in changes.items():
        kopf.on.mutate(
            resource.group, resource.version, resource.plural, id=path, operations=["CREATE"], registry=registry
        )(_never_in_the_way(resource, path, change, reviewed))
    return registry


def _never_in_the_way(resource: Resource, webhook: str, review: Any, reviewed: Reviewed) -> Any:
    """Admit the object if the review fails unexpectedly. To kopf, any exception of a handler is a refusal."""

    async def guarded(**request: Any) -> None:
        try:
            await review(**request)
        except kopf.AdmissionError:
            reviewed(webhook, ReviewOutcome.REFUSED)
            raise
        except Exception as error:  # noqa: BLE001 - the boundary: an object is never refused for a defect of ours
            name = request.get("name")
            _log.error(
                "admitted unchecked: this is a bug", object=f"{resource.kind} {name}", error=str(error), exc_info=error
            )
            reviewed(webhook, ReviewOutcome.ERROR)
        else:
            reviewed(webhook, ReviewOutcome.WARNED if request.get("warnings") else ReviewOutcome.ALLOWED)

    return guarded


def _policy_review(resource: Resource, judge: Judge) -> Any:
    async def review(
        new: Mapping[str, Any],
        old: Mapping[str, Any] | None,
        warnings: list[str],
        userinfo: Mapping[str, Any],
        **_: Any,
    ) -> None:
        judged = from_request(resource, dict(new))
        if judged.deleting:
            return  # anyone may remove a finalizer
        verdict = judge(judged)
        warnings.extend(verdict.warnings)
        if not verdict.errors:
            return
        if old is not None and dict(old).get("spec") == dict(new).get("spec"):
            # This spec is in the cluster already, and its condition says so. Labels and owners can still be changed.
            warnings.extend(verdict.errors)
            return
        _log.info("refused", object=judged.title, user=userinfo.get("username"), why=in_one_line(verdict.errors))
        raise kopf.AdmissionError(in_one_line(verdict.errors), code=UNPROCESSABLE)

    return review


def _launch_review(resource: Resource, runtimes: Runtimes) -> Any:
    async def review(
        new: Mapping[str, Any],
        old: Mapping[str, Any] | None,
        warnings: list[str],
        userinfo: Mapping[str, Any],
        headers: Mapping[str, str],
        **_: Any,
    ) -> None:
        body, before = dict(new), dict(old) if old is not None else None
        metadata = body.get("metadata", {})
        if "deletionTimestamp" in metadata or not changed(body, before):
            return
        verdict = verdict_of(body, before, await runtimes.of(body, headers[REQUEST_NAMESPACE]))
        warnings.extend(verdict.warnings)
        if not verdict.errors:
            return
        where = "/".join(each for each in (metadata.get("namespace"), metadata.get("name")) if each)
        title = f"{resource.kind} {where}"
        _log.info("refused", object=title, user=userinfo.get("username"), why=in_one_line(verdict.errors))
        raise kopf.AdmissionError("\n".join(verdict.errors), code=UNPROCESSABLE)

    return review


def _preparation(runtimes: Runtimes) -> Any:
    async def prepare(new: Mapping[str, Any], patch: kopf.Patch, headers: Mapping[str, str], **_: Any) -> None:
        body = dict(new)
        if not asks_to_be_prepared(body):
            return
        changes = changes_of(body, await runtimes.of(body, headers[REQUEST_NAMESPACE]))
        if not changes:
            return
        for change in changes:
            *parents, last = change.path
            field: Any = patch
            for step in parents:
                field = field.setdefault(step, {})
            field[last] = change.value
        patch.setdefault("metadata", {})["annotations"] = record_of(changes)

    return prepare


def _birth(births: SettingsAtBirth) -> Any:
    async def bear(new: Mapping[str, Any], patch: kopf.Patch, headers: Mapping[str, str], **_: Any) -> None:
        job = dict(new)
        if not of_job_set(job):
            return
        made = born(job, await births.of_namespace(headers[REQUEST_NAMESPACE]))
        if made != job:
            patch.fns.append(lambda body: body.update(made))  # type: ignore[typeddict-item]

    return bear


def _borrow(session: Session) -> aiohttp.ClientSession:
    """A session for kopf on our connections, which outlive it."""
    arguments = session.connection_arguments()

    async def authorize(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        request.headers.update(await session.authorization())
        request.server_hostname = arguments.get("server_hostname")
        return await send(request)

    return aiohttp.ClientSession(
        connector=session.pool.connector,
        connector_owner=False,
        headers={"User-Agent": USER_AGENT},
        proxy=arguments.get("proxy"),
        middlewares=(authorize,),
    )


def _quieten() -> None:
    """Silence what kopf logs as a warning or an error although it is neither."""
    # In a thread kopf leaves signals alone, and says so at every start. It also raises the failures that it logs, and
    # the code that tries again logs them once.
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.CRITICAL)
    # To kopf every refusal is an error of a handler. Only an unexpected exception has a traceback.
    objects = logging.getLogger("kopf.objects")
    if _has_traceback not in objects.filters:
        objects.addFilter(_has_traceback)


def _has_traceback(record: logging.LogRecord) -> bool:
    return record.levelno < logging.ERROR or record.exc_info is not None
