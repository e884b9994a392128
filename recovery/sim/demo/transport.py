"""The shortest way from the production client to the modelled API server: nothing is lost or late on it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from recovery.kube.request import ApiRequest
from recovery.sim.api.client import answer, error_from, lines
from recovery.sim.api.server import ApiServer
from recovery.sim.api.status_error import StatusError


class DirectTransport:
    """`kube.client.Transport` where HTTP stands in the real program. A request takes one turn of the loop."""

    def __init__(self, server: ApiServer, actor: str) -> None:
        """`actor`: whose writes they are."""
        self._server = server
        self._actor = actor

    async def send(self, request: ApiRequest) -> bytes:
        await asyncio.sleep(0)
        try:
            return answer(self._server, self._actor, request)
        except StatusError as failure:
            raise error_from(request, failure) from failure

    async def stream(self, request: ApiRequest, timeout_seconds: int) -> AsyncGenerator[bytes, None]:
        try:
            async with aclosing(lines(self._server, request)) as coming:
                async for line in coming:
                    yield line
        except StatusError as failure:
            raise error_from(request, failure) from failure
