"""kopf, reduced to what is wanted of it: an HTTPS server for three webhooks.

It has no create or update handlers, because those annotate the objects; it watches nothing, because it would not notice
what was deleted while a watch was interrupted; and it manages no webhook configuration. What is left are a few
discovery requests at the start, for which it borrows our connection pool and credentials.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import kopf
import structlog

from recovery.admission.accepted import in_one_line
from recovery.admission.objects import JUDGED, JudgedObject, from_request
from recovery.admission.verdict import Verdict
from recovery.kube.session import USER_AGENT, Session
from recovery.ports import Resource

CERTIFICATE_LOOK_SECONDS = 10.0
"""Between looks whether the certificate on disk is another one."""
UNPROCESSABLE = 422
"""As the API server itself answers for an invalid object."""

_log = structlog.get_logger("recovery.admission")

Judge = Callable[[JudgedObject], Verdict]


async def serve_webhooks(
    judge: Judge,
    session: Session,
    *,
    host: str,
    port: int,
    certificate: Path,
    key: Path,
    listening: Callable[[bool], None],
    stop: asyncio.Event,
) -> None:
    """Until `stop`. `certificate` and `key` may be one file; a change of them is noticed.

    `listening` is told when the server begins to listen and when it has ended. Raises whatever ends kopf.
    """
    _quieten()
    settings = kopf.OperatorSettings()
    settings.admission.server = _Server(
        listening,
        addr=host,
        port=port,
        certfile=certificate,
        pkeyfile=key,
        file_check_interval=CERTIFICATE_LOOK_SECONDS,
    )
    settings.posting.enabled = False
    settings.scanning.disabled = True  # else it watches all CRDs and namespaces
    # Ten minutes after kopf has ended by an error it would send SIGKILL, and that takes the whole process.
    settings.process.ultimate_exiting_timeout = None
    await kopf.operator(
        registry=_registry(judge, session), settings=settings, standalone=True, clusterwide=True, stop_flag=stop
    )


class _Server(kopf.WebhookServer):
    """kopf's server, telling when it listens."""

    def __init__(self, listening: Callable[[bool], None], **settings: Any) -> None:
        super().__init__(**settings)
        self._listening = listening

    async def __call__(self, fn: Any) -> AsyncIterator[Any]:
        try:
            async for client_config in super().__call__(fn):
                self._listening(True)
                yield client_config
        finally:
            self._listening(False)


def _registry(judge: Judge, session: Session) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()
    logins = 0

    async def login(**_: Any) -> kopf.AiohttpSession:
        nonlocal logins
        if logins:  # the credentials were not accepted
            await session.refresh(session.credentials_version)
        logins += 1
        return kopf.AiohttpSession(server=session.server, aiohttp_session=_borrow(session))

    kopf.on.login(registry=registry)(login)
    for resource in JUDGED:
        kopf.on.validate(
            resource.group,
            resource.version,
            resource.plural,
            id=resource.plural,  # which is the path, too
            operations=["CREATE", "UPDATE"],
            registry=registry,
        )(_reviewer(resource, judge))
    return registry


def _reviewer(resource: Resource, judge: Judge) -> Any:
    async def review(
        new: Mapping[str, Any],
        old: Mapping[str, Any] | None,
        warnings: list[str],
        userinfo: Mapping[str, Any],
        **_: Any,
    ) -> None:
        judged = from_request(resource, dict(new))
        if judged.deleting:
            return  # nobody is kept from taking a finalizer off
        verdict = judge(judged)
        warnings.extend(verdict.warnings)
        if not verdict.errors:
            return
        if old is not None and dict(old).get("spec") == dict(new).get("spec"):
            # It is in the cluster as it is, and its condition says so; labels and owners can be changed all the same.
            warnings.extend(verdict.errors)
            return
        _log.info("refused", object=judged.title, user=userinfo.get("username"), why=in_one_line(verdict.errors))
        raise kopf.AdmissionError(in_one_line(verdict.errors), code=UNPROCESSABLE)

    return review


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
    """What kopf logs as warnings and errors though it is neither."""
    # It runs in a thread, so it leaves signals alone, and says so at every start.
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)
    # Every refusal is an error of a handler to it. What a handler did not mean to raise comes with a traceback.
    objects = logging.getLogger("kopf.objects")
    if _has_traceback not in objects.filters:
        objects.addFilter(_has_traceback)


def _has_traceback(record: logging.LogRecord) -> bool:
    return record.levelno < logging.ERROR or record.exc_info is not None
