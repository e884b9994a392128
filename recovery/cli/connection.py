"""From a command to the API server, and from whatever goes wrong on the way to one clear line and an exit code."""

import asyncio
import random
import re
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NoReturn

import msgspec

from recovery.cli.exit_codes import EXIT_FAILURE, print_error
from recovery.cli.preflight import absent_resources, install_words
from recovery.controller.clock import SystemClock
from recovery.kube.client import KubeApiClient
from recovery.kube.contact import ApiContact, reaches_with_new_session
from recovery.kube.http import HttpTransport
from recovery.kube.kubeconfig_context import default_namespace
from recovery.kube.observer import NoObserver, RequestObserver
from recovery.kube.session import SessionError, open_session
from recovery.ports import (
    ApiClient,
    ApiError,
    Clock,
    Entropy,
    ForbiddenError,
    NoSuchResourceError,
    TryLaterError,
    UnauthorizedError,
)
from recovery.program import EXIT_INTERRUPTED
from recovery.telemetry.server import ServerError

_FORBIDDEN = re.compile(
    r'(User ".*" cannot (\S+) resource "([^"]+)" in API group "([^"]*)"(?: in the namespace "([^"]+)")?.*)', re.DOTALL
)
"""What the API server's RBAC authorizer answers."""


class CommandError(Exception):
    """The command cannot do what it was asked for; the message is one line for stderr."""


class Connection(msgspec.Struct, frozen=True):
    """The API server that a command talks to."""

    client: ApiClient
    server: str
    """URL."""
    clock: Clock
    entropy: Entropy
    contact: ApiContact | None = None
    """Whether it is reached. None: nobody keeps count."""


@asynccontextmanager
async def connect(
    kubeconfig: str | None, context: str | None, observer: RequestObserver | None = None
) -> AsyncIterator[Connection]:
    """A session for as long as the context lasts. Raises SessionError; names what is not installed by CommandError."""
    clock, entropy = SystemClock(), random.Random()  # noqa: S311 - spreads retries, guards no secret
    async with open_session(kubeconfig=kubeconfig, context=context) as session:
        contact = ApiContact(clock, partial(reaches_with_new_session, kubeconfig, context), observer or NoObserver())
        client = KubeApiClient(HttpTransport(session, clock=clock, observer=contact), clock=clock, entropy=entropy)
        try:
            yield Connection(client, session.server, clock, entropy, contact)
        except NoSuchResourceError as error:
            raise CommandError(install_words(await absent_resources(client)) or str(error)) from error


async def chosen_namespace(kubeconfig: str | None, context: str | None, namespace: str | None) -> str:
    """What was asked for, else what the context says."""
    return namespace if namespace is not None else await default_namespace(kubeconfig, context)


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
        case _:
            return str(error)


def _permission_words(message: str) -> str:
    """The permission as a role would grant it, before what the API server says of it."""
    found = _FORBIDDEN.search(message)
    if found is None:
        return message
    said, verb, resource, group, namespace = found.groups()
    name, slash, subresource = resource.partition("/")
    target = f"{name}.{group}{slash}{subresource}" if group else resource
    return f"{verb} {target} {f'in namespace {namespace}' if namespace else 'in all namespaces'} ({said})"
