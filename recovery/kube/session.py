"""Finds the cluster and the credentials for it with kubernetes_asyncio, behind one small class.

kubernetes_asyncio reads kubeconfigs (tokens, token files, client certificates, OIDC, passwords) and the service account
of a pod, and it builds the connection pool with the right TLS context. This module adds the order in which the sources
are tried, one clear line for each way in which they fail, and the refresh after a 401. A refresh reads the source again
from the start, so it runs exec plugins again, reads token files again and sees an edited kubeconfig.
(kubernetes_asyncio's own `refresh_token` is a polling loop for only two of these sources.) The token of a service
account is also read again once a minute, by kubernetes_asyncio's hook. A CA file or a client certificate that is
replaced on disk is read again for new connections; open connections stay as they are.
"""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import structlog
import yaml
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.client.rest import RESTClientObject
from kubernetes_asyncio.config import ConfigException, load_incluster_config
from kubernetes_asyncio.config.incluster_config import SERVICE_HOST_ENV_NAME
from yarl import URL

from recovery.kube.environment_proxy import environment_proxy
from recovery.kube.kubeconfig import load_kubeconfig

USER_AGENT = "trainjob-recovery"
CONNECTIONS_MAX = 200
"""Writes in flight, live reads of several groups at once, and the watches, which hold one connection each."""
READ_BUFFER_BYTES = 1 << 20
"""How much of one response is buffered before reading pauses: some hundred pods, so that a burst costs few wake-ups."""
LOAD_SECONDS_MAX = 60.0
"""An exec plugin that hangs (a cloud tool waiting for a login) must not hang us."""
CERTIFICATE_CHECK_SECONDS = 10.0
"""Between checks whether certificate files have been replaced."""

# The exceptions that kubernetes_asyncio raises for a malformed kubeconfig: besides its own, those of indexing into
# whatever the YAML holds, of its assertions, and of file, base64 and YAML errors.
_LOAD_ERRORS = (
    ConfigException,
    OSError,
    yaml.YAMLError,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    AssertionError,
    RuntimeError,
    TimeoutError,
)


_log = structlog.get_logger("recovery.kube")


_CERTIFICATE_FILES = ("ssl_ca_cert", "cert_file", "key_file")


class SessionError(Exception):
    """There is no usable way to the cluster. The message is one line that names the source and the problem."""


class Session:
    """An open connection pool to one API server, with credentials. Made by `open_session`."""

    def __init__(self, configuration: Configuration, kubeconfig: str | None, context: str | None) -> None:
        self._configuration = configuration
        self._kubeconfig = kubeconfig
        self._context = context
        self._rest = RESTClientObject(configuration)
        self._refreshing = asyncio.Lock()
        self._failures = 0
        """How many refreshes have failed."""
        self._failure: SessionError | None = None
        """The failure of the last failed refresh. None: no refresh has failed."""
        # The connector and its TLS context are kubernetes_asyncio's. The session on it is ours, because theirs reads
        # the environment for each request: two hops to a thread each time, for netrc and for the proxy variables.
        self.pool = aiohttp.ClientSession(
            connector=self._rest.pool_manager.connector,
            connector_owner=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=READ_BUFFER_BYTES,
        )
        self._certificates = _stamp(configuration)
        self._tls = _tls_context(configuration)
        self._certificates_checked_seconds = asyncio.get_running_loop().time()
        self._complaint = ""
        self._proxy = self._rest.proxy or environment_proxy(self.server, os.environ)
        self.credentials_version = 0
        """Increased by every refresh, so that a burst of 401 answers causes one refresh, not one for each."""

    @property
    def server(self) -> str:
        """The API server's URL, with its path prefix if it has one, and without a trailing slash."""
        return str(self._configuration.host).rstrip("/")

    def connection_arguments(self) -> dict[str, Any]:
        """The arguments for each aiohttp request besides URL and headers: the TLS context for the present certificate
        files, and proxy and TLS server name where configured."""
        self._read_replaced_certificates()
        # The pool finds connections by their TLS context, so connections with an earlier context are not reused.
        arguments: dict[str, Any] = {"ssl": self._tls} if self._tls is not None else {}
        if self._proxy:
            arguments["proxy"] = self._proxy
        if self._rest.server_hostname:
            arguments["server_hostname"] = self._rest.server_hostname
        return arguments

    async def authorization(self) -> Mapping[str, str]:
        """The authorization header, or none for a client certificate. Raises SessionError if the token file is gone."""
        try:
            settings = await self._configuration.auth_settings()
        except (ConfigException, OSError) as error:
            raise SessionError(f"service account: {_one_line(error)}") from error
        return {str(setting["key"]): str(setting["value"]) for setting in settings.values()}

    async def refresh(self, seen_version: int) -> None:
        """Read the credentials again, unless they were read since `seen_version`. Raises SessionError.

        Callers that wait for a refresh that fails share its failure, so a plugin that wants a login runs once.
        """
        failures = self._failures
        async with self._refreshing:
            if self.credentials_version != seen_version:
                return
            if self._failure is not None and self._failures != failures:
                raise self._failure
            try:
                fresh = await _load(self._kubeconfig, self._context)
            except SessionError as error:
                self._failure, self._failures = error, self._failures + 1
                raise
            self._configuration.api_key = fresh.api_key
            self._configuration.refresh_api_key_hook = fresh.refresh_api_key_hook
            for name in _CERTIFICATE_FILES:
                setattr(self._configuration, name, getattr(fresh, name))
            self._certificates_checked_seconds = 0.0
            self.credentials_version += 1

    def _read_replaced_certificates(self) -> None:
        """Use certificate files that were replaced. While only one half of a pair is replaced, the pair cannot be read,
        and the old one stays in use."""
        now = asyncio.get_running_loop().time()
        if self._tls is None or now - self._certificates_checked_seconds < CERTIFICATE_CHECK_SECONDS:
            return
        self._certificates_checked_seconds = now
        try:
            found = _stamp(self._configuration)
            if found == self._certificates:
                return
            self._tls = _tls_context(self._configuration)
        except OSError as error:  # ssl.SSLError is one
            if _one_line(error) != self._complaint:
                _log.warning("replaced certificates cannot be read; the old ones are used", error=_one_line(error))
            self._complaint = _one_line(error)
            return
        self._certificates, self._complaint = found, ""
        _log.info("replaced certificates were read")

    async def close(self) -> None:
        await self.pool.close()
        await self._rest.close()


@asynccontextmanager
async def open_session(*, kubeconfig: str | None = None, context: str | None = None) -> AsyncIterator[Session]:
    """Find the cluster and open a session to it.

    `kubeconfig` names the file; several separated by `:` are merged, as in kubectl. None: `KUBECONFIG`, else the
    service account if this is a pod, else `~/.kube/config`. `context` None: the current one. Naming a context rules out
    the service account. No request is sent. Raises SessionError.
    """
    source = kubeconfig or os.environ.get("KUBECONFIG") or None
    in_pod = bool(os.environ.get(SERVICE_HOST_ENV_NAME))
    if source is None and (context is not None or not in_pod):
        source = str(Path.home() / ".kube" / "config")
    configuration = await _load(source, context)
    try:
        session = Session(configuration, source, context)
    except OSError as error:  # ssl.SSLError is one
        raise SessionError(f"{source or 'service account'}: certificates: {_one_line(error)}") from error
    try:
        yield session
    finally:
        await session.close()


async def _load(kubeconfig: str | None, context: str | None) -> Configuration:
    """Read the kubeconfig, or the service account where there is none to read."""
    configuration = Configuration()
    configuration.connection_pool_maxsize = CONNECTIONS_MAX
    # From Python 3.13 on OpenSSL's strict mode is the default; it refuses cluster CAs that kubectl accepts.
    configuration.disable_strict_ssl_verification = True
    try:
        if kubeconfig is None:
            load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            return configuration
        _require_file(kubeconfig)
        async with asyncio.timeout(LOAD_SECONDS_MAX):
            await load_kubeconfig(kubeconfig, context, configuration)
    except _LOAD_ERRORS as error:
        raise SessionError(_explain(kubeconfig, context, error)) from error
    if not str(configuration.host).startswith(("https://", "http://")):
        raise SessionError(f"kubeconfig {kubeconfig}: the cluster of the context names no http(s) server")
    try:
        URL(str(configuration.host))
    except ValueError as error:
        raise SessionError(f"kubeconfig {kubeconfig}: the server {configuration.host!r} is no URL: {error}") from error
    return configuration


def _stamp(configuration: Configuration) -> tuple[tuple[str, int, int, int], ...]:
    """A value that changes when any certificate file is written or replaced. Raises OSError."""
    paths = [path for name in _CERTIFICATE_FILES if (path := getattr(configuration, name))]
    return tuple((path, (at := os.stat(path)).st_mtime_ns, at.st_ino, at.st_size) for path in paths)


def _tls_context(configuration: Configuration) -> ssl.SSLContext | None:
    """The TLS context as kubernetes_asyncio's RESTClientObject makes it. None: plain HTTP. Raises OSError."""
    if not str(configuration.host).startswith("https://"):
        return None
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _require_file(kubeconfig: str) -> None:
    if not any(Path(path).expanduser().is_file() for path in kubeconfig.split(os.pathsep) if path):
        raise SessionError(f"no cluster: there is no kubeconfig at {kubeconfig}; set KUBECONFIG, or name another file")


def _explain(kubeconfig: str | None, context: str | None, error: Exception) -> str:
    if kubeconfig is None:
        return f"service account: {_one_line(error)}"
    if isinstance(error, TimeoutError):
        return f"kubeconfig {kubeconfig}: credentials did not come within {LOAD_SECONDS_MAX:.0f} s"
    if context is not None and "/contexts list" in str(error):
        return f"kubeconfig {kubeconfig}: there is no context {context!r}"
    if isinstance(error, ConfigException):
        return f"kubeconfig {kubeconfig}: {_one_line(error)}"
    if isinstance(error, TypeError | AttributeError | AssertionError):  # from indexing into other YAML
        return f"kubeconfig {kubeconfig} is not a kubeconfig: it does not hold clusters, contexts and users as one does"
    return f"kubeconfig {kubeconfig} cannot be read: {type(error).__name__}: {_one_line(error)}"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
