"""Connects a command to the API server, and turns every error into one clear line and an exit code."""

import asyncio
import random
import re
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NoReturn

import msgspec

from recovery.cli.arguments import ServerOptions
from recovery.cli.exit_codes import EXIT_FAILURE, print_error
from recovery.cli.preflight import absent_resources, install_words
from recovery.controller.clock import SystemClock
from recovery.kube.client import RETRY_WINDOW_SECONDS, KubeApiClient
from recovery.kube.contact import ApiContact, reaches_with_new_session
from recovery.kube.http import HttpTransport
from recovery.kube.kubeconfig import default_namespace
from recovery.kube.observer import NoObserver, RequestObserver
from recovery.kube.session import Session, SessionError, open_session
from recovery.ports import (
    ApiClient,
    ApiError,
    Clock,
    Entropy,
    ForbiddenError,
    NoSuchResourceError,
    TryLaterError,
    UnauthorizedError,
    UnknownOutcomeError,
    UntrustedServerError,
)
from recovery.program import EXIT_INTERRUPTED
from recovery.telemetry.server_error import ServerError

_FORBIDDEN = re.compile(
    r'(User ".*" cannot (\S+) resource "([^"]+)" in API group "([^"]*)"(?: in the namespace "([^"]+)")?.*)', re.DOTALL
)
"""The message of the API server's RBAC authorizer."""


class CommandError(Exception):
    """The command cannot do what it was asked for. The message is one line for stderr."""


class Connection(msgspec.Struct, frozen=True):
    """The API server that a command talks to."""

    client: ApiClient
    server: str
    """Its URL."""
    clock: Clock
    entropy: Entropy
    contact: ApiContact | None = None
    """Whether the API server answers. None: this is not tracked."""
    session: Session | None = None
    """For what no request of the client can do, such as exec. None: there is none."""


@asynccontextmanager
async def connect(server: ServerOptions, observer: RequestObserver | None = None) -> AsyncIterator[Connection]:
    """Open a session for the context. Raises SessionError.

    Raises CommandError for a resource that is not installed, and for an answer that exceeds the time an option sets.
    """
    clock, entropy = SystemClock(), random.Random()  # noqa: S311 - spreads retries, guards no secret
    kubeconfig, context = server.kubeconfig, server.context
    async with open_session(kubeconfig=kubeconfig, context=context) as session:
        contact = ApiContact(clock, partial(reaches_with_new_session, kubeconfig, context), observer or NoObserver())
        client = _client(session, contact, server.request_seconds, clock, entropy)
        try:
            yield Connection(client, session.server, clock, entropy, contact, session)
        except NoSuchResourceError as error:
            raise CommandError(install_words(await absent_resources(client)) or str(error)) from error
        except TryLaterError as error:
            if server.request_seconds is None or not isinstance(error.__cause__, TimeoutError):
                raise
            raise CommandError(f"{error_words(error)}; --request-timeout sets how long to wait") from error


def _client(
    session: Session, observer: RequestObserver, request_seconds: float | None, clock: Clock, entropy: Entropy
) -> KubeApiClient:
    """`request_seconds`: as in ServerOptions. It also limits how long a request is retried."""
    if request_seconds is None:
        transport = HttpTransport(session, clock=clock, observer=observer)
        return KubeApiClient(transport, clock=clock, entropy=entropy)
    limit = request_seconds or None
    transport = HttpTransport(session, clock=clock, observer=observer, request_seconds_max=limit)
    window = min(RETRY_WINDOW_SECONDS, limit or RETRY_WINDOW_SECONDS)
    return KubeApiClient(transport, clock=clock, entropy=entropy, retry_window_seconds=window)


async def chosen_namespace(server: ServerOptions, namespace: str | None) -> str:
    """The namespace that was asked for, else that of the context."""
    return namespace if namespace is not None else await default_namespace(server.kubeconfig, server.context)


def execute(work: Coroutine[Any, Any, int]) -> NoReturn:
    """Run a command to its end and exit with the code that it returns, or with one line about what went wrong."""
    try:
        code = asyncio.run(work)
    except (CommandError, SessionError, ServerError) as error:
        _fail(str(error))
    except ApiError as error:
        _fail(error_words(error))
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    sys.exit(code)


def _fail(line: str) -> NoReturn:
    print_error(line)
    sys.exit(EXIT_FAILURE)


def error_words(error: ApiError) -> str:
    """What an error means to a person, in one line."""
    match error:
        case UnauthorizedError():
            return f"the API server does not accept the credentials: {error}"
        case ForbiddenError():
            return f"a permission is missing: {_permission_words(str(error))}"
        case TryLaterError(status=None):
            return f"no cluster: the API server does not answer: {error}"
        case UntrustedServerError():
            return f"no cluster: {error}"
        case UnknownOutcomeError():
            return f"it is not known whether this was done; run the command again: {error}"
        case _:
            return str(error)


def _permission_words(message: str) -> str:
    """The permission as a role would grant it, followed by the API server's message."""
    found = _FORBIDDEN.search(message)
    if found is None:
        return message
    said, verb, resource, group, namespace = found.groups()
    name, slash, subresource = resource.partition("/")
    target = f"{name}.{group}{slash}{subresource}" if group else resource
    return f"{verb} {target} {f'in namespace {namespace}' if namespace else 'in all namespaces'} ({said})"
