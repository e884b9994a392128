"""The HTTPS server of the webhooks, which replaces kopf's own.

kopf's server has no limits: see `recovery.http_server`. kopf accepts any server that passes requests to kopf's function
and yields once it listens. This one has the route and the answers of kopf's, except for reviews that kopf must not
read: see `recovery.admission.reviews`.
"""

import asyncio
import hashlib
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import kopf
from aiohttp import web

from recovery.admission.reviews import EarlyAnswer, Reviewed, ReviewError, read_review
from recovery.http_server import HttpLimits, listen

WEBHOOK_LIMITS = HttpLimits(body_bytes=8 * 1024 * 1024)
"""An API server opens a connection for each review in progress. A review of an update contains the object twice, each
at most 3 MiB. A review over `reviews.CHECKED_BYTES_MAX` is accepted only to answer that it is not checked."""
REQUEST_NAMESPACE = "request-namespace"
"""The only header that handlers see. kopf passes them the headers of a review, but not the namespace of its request."""
_CLOSE_SECONDS = 1.0
"""How long the shutdown waits for reviews in progress."""


class HttpsServer:
    """A server for `kopf.OperatorSettings.admission.server`."""

    def __init__(
        self,
        listening: Callable[[bool], None],
        *,
        plurals: Mapping[str, str],
        reviewed: Reviewed,
        host: str,
        port: int,
        certificate: Path,
        key: Path,
        check_seconds: float,
        limits: HttpLimits = WEBHOOK_LIMITS,
    ) -> None:
        """`listening` is called when it begins to listen and when it ends. `reviewed` is called for the reviews that
        kopf does not see.

        `plurals`: for each path, the resource that it judges.
        `check_seconds`: between checks for a new certificate on disk.
        """
        self._listening = listening
        self._plurals = plurals
        self._reviewed = reviewed
        self._host = host
        self._port = port
        self._certificate = certificate
        self._key = key
        self._check_seconds = check_seconds
        self._limits = limits

    async def __call__(self, review: Any) -> AsyncIterator[kopf.WebhookClientConfig]:
        """`review`: kopf's function, which takes the request of the API server and returns the answer."""
        answer = partial(self._answer, partial(review, memories=_NoMemories()))
        try:
            digest = self._digest()  # before the load, to notice a replacement during it
            context = self._load()
            async with listen(
                [web.post("/{id:.*}", answer)],
                self._host,
                self._port,
                limits=self._limits,
                close_seconds=_CLOSE_SECONDS,
                context=lambda: context,
            ):
                self._listening(True)
                yield {"url": f"https://{self._host}:{self._port}"}
                while True:  # open connections keep their certificate, as in other webhooks of Kubernetes
                    digest, context = await self._replacement(digest)
        finally:
            self._listening(False)

    async def _answer(self, review: Any, request: web.Request) -> web.StreamResponse:
        path = request.match_info["id"]
        try:
            read = read_review(await request.read(), self._plurals.get(path))
        except ReviewError as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from None
        if isinstance(read, EarlyAnswer):
            self._reviewed(path, read.outcome)
            return web.json_response(read.body)

        async def of_namespace(data: Any, **more: Any) -> Any:
            return await review(data, **{**more, "headers": {REQUEST_NAMESPACE: read.namespace}})

        kopfs: Any = of_namespace
        return await kopf.WebhookServer._serve(kopfs, request)

    async def _replacement(self, served: bytes) -> tuple[bytes, ssl.SSLContext]:
        """Wait for the next certificate, and return its digest and context. `served`: the digest of the current one.

        A certificate that does not fit its key is read again at the next check: perhaps only one of the files has been
        replaced yet. Raises SSLError if the files are the same then, and OSError if they cannot be read.
        """
        misfit = b""
        while True:
            await asyncio.sleep(self._check_seconds)
            digest = self._digest()
            if digest == served:
                continue
            try:
                return digest, self._load()
            except ssl.SSLError:
                if digest == misfit:
                    raise
                misfit = digest

    def _load(self) -> ssl.SSLContext:
        context = ssl.create_default_context(purpose=ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self._certificate, self._key)
        return context

    def _digest(self) -> bytes:
        """The digest of the files. It is compared because mounted Secrets change without notice. Raises OSError."""
        return hashlib.sha256(self._certificate.read_bytes() + self._key.read_bytes()).digest()


class _NoMemories:
    """Replaces kopf's memories, which keep a memo of each changed object until a watch shows its deletion: forever."""

    async def recall_memo(self, *_: Any, **__: Any) -> kopf.Memo:
        return kopf.Memo()
