"""A client that dies, or is interrupted, at a chosen write."""

from collections.abc import Callable
from typing import Any

from recovery.ports import ApiClient, ApiRequest


class Writes:
    """Counts the writes of a client, and calls `at_the_last` before or after the write of that number."""

    def __init__(self, api: ApiClient, last: int, at_the_last: Callable[[], object], *, applied: bool) -> None:
        self.count = 0
        self._api = api
        self._last = last
        self._at_the_last = at_the_last
        self._applied = applied

    async def send(self, request: ApiRequest) -> bytes:
        if not request.writes:
            return await self._api.send(request)
        self.count += 1
        if self.count == self._last and not self._applied:
            self._at_the_last()
        answer = await self._api.send(request)
        if self.count == self._last and self._applied:
            self._at_the_last()
        return answer

    def watch(self, request: ApiRequest) -> Any:
        raise AssertionError("nothing is watched")
