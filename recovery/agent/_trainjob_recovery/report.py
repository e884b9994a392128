"""Sends the job's report to the controller, and reads its answer."""

import asyncio
import contextlib
import http.client
import json
import socket
import ssl
import threading
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .messages import Action, ReportAnswer
from .wire import MalformedLineError, boolean, integer, json_object, matching

PATH = "/agent/v1/report"
TIMEOUT_SECONDS = 10.0
REPORT_LIMIT_BYTES = 32_768
ANSWER_LIMIT_BYTES = 8_192
TOKEN_LIMIT_BYTES = 16_384
_LONGEST_RETRY_SECONDS = 300.0


@dataclass(frozen=True)
class ReportEndpoint:
    """Where reports go."""

    host: str
    port: int
    ca_pem: str
    token_file: str


@dataclass(frozen=True)
class NoAnswer:
    """The last answer stays in force, and the report is sent again later."""

    why: str
    retry_after_seconds: float | None = None
    """None: the controller did not say when."""
    stands_by: bool = False
    """A replica that does not lead has answered. The next report meets another one as likely as not."""


def controller_of(environ: Mapping[str, str]) -> ReportEndpoint | None:
    """None: admission has not said where the controller is, so nothing is reported."""
    url, ca_pem = environ.get("RECOVERY_AGENT_URL", ""), environ.get("RECOVERY_AGENT_CA", "")
    token_file = environ.get("RECOVERY_AGENT_TOKEN_FILE", "")
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme != "https" or not parts.hostname or not ca_pem or not token_file:
        return None
    return ReportEndpoint(parts.hostname, port or 443, ca_pem, token_file)


async def send(controller: ReportEndpoint, report: Mapping[str, object]) -> ReportAnswer | NoAnswer:
    """One report. It takes 10 s at most, whatever the other side does."""
    post = _Post(controller, json.dumps(report, ensure_ascii=False, separators=(",", ":")).encode())
    loop = asyncio.get_running_loop()
    result: asyncio.Future[ReportAnswer | NoAnswer] = loop.create_future()

    def finish(value: ReportAnswer | NoAnswer) -> None:
        if not result.done():
            result.set_result(value)

    def work() -> None:
        value = post.result()
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(finish, value)

    # A daemon does not keep the agent from ending, unlike a thread of an executor.
    threading.Thread(target=work, name="report", daemon=True).start()
    try:
        return await asyncio.wait_for(result, TIMEOUT_SECONDS)
    except asyncio.TimeoutError:
        return NoAnswer(f"no answer within {TIMEOUT_SECONDS:.0f} s")
    finally:
        post.cut()


class _Post:
    def __init__(self, controller: ReportEndpoint, body: bytes) -> None:
        self._controller = controller
        self._body = body
        self._socket: socket.socket | None = None
        """None: not connected yet."""

    def result(self) -> ReportAnswer | NoAnswer:
        try:
            if len(self._body) > REPORT_LIMIT_BYTES:
                return NoAnswer("the report is longer than 32 KiB")
            return self._exchange(self._token())
        except MalformedLineError as error:
            return NoAnswer(f"the answer is malformed: {error}")
        except (OSError, ValueError, http.client.HTTPException) as error:
            return NoAnswer(f"{type(error).__name__}: {error}"[:300])
        finally:
            self.cut()

    def cut(self) -> None:
        """Break the connection off, from any thread, so that what waits for it ends."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def _token(self) -> str:
        """It is read each time, because the kubelet renews it."""
        with Path(self._controller.token_file).open("rb") as file:
            token = file.read(TOKEN_LIMIT_BYTES + 1).strip()
        if not token or len(token) > TOKEN_LIMIT_BYTES:
            raise ValueError("the token's file holds no token")
        return token.decode("ascii")

    def _exchange(self, token: str) -> ReportAnswer | NoAnswer:
        context = ssl.create_default_context(cadata=self._controller.ca_pem)
        connection = http.client.HTTPSConnection(
            self._controller.host, self._controller.port, timeout=TIMEOUT_SECONDS, context=context
        )
        try:
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "Connection": "close"}
            connection.connect()
            self._socket = connection.sock
            connection.request("POST", PATH, body=self._body, headers=headers)
            response = connection.getresponse()
            if response.status != 200:
                after_seconds = _retry_after(response.getheader("Retry-After"))
                return NoAnswer(f"status {response.status}", after_seconds, stands_by=response.status == 503)
            body = response.read(ANSWER_LIMIT_BYTES + 1)
        finally:
            connection.close()
        if len(body) > ANSWER_LIMIT_BYTES:
            return NoAnswer("the answer is longer than 8 KiB")
        return answer_of(body)


def _retry_after(text: str | None) -> float | None:
    """None: it is missing, or a date."""
    if text is None or not text.isascii() or not text.isdigit():
        return None
    return min(float(text), _LONGEST_RETRY_SECONDS)


def answer_of(body: bytes) -> ReportAnswer:
    """Raises MalformedLineError."""
    fields = json_object(body)
    if fields.get("v") != 1:
        raise MalformedLineError("a version that is not known")
    return ReportAnswer(
        permitted=boolean(fields.get("permitted")),
        alone=integer(0, 1000)(fields.get("alone")),
        in_place_seconds=_seconds(fields.get("inPlaceSeconds"), 1.0, 3600.0),
        every_seconds=_seconds(fields.get("everySeconds"), 1.0, 300.0),
        action=_action(fields.get("action")),
    )


def _action(value: Any) -> Action | None:
    if value is None:
        return None
    if type(value) is not dict:
        raise MalformedLineError("an action that is not an object")
    do = matching("Restart|Exit")(value.get("do"))
    barrier = matching("[0-9a-f]{16}")(value.get("barrier"))
    return Action(barrier, integer(1)(value.get("epoch")), restart=do == "Restart")


def _seconds(value: Any, lowest: float, highest: float) -> float:
    """What is out of bounds is taken as the bound."""
    if type(value) not in (int, float) or value != value:  # noqa: PLR0124 - NaN alone differs from itself
        raise MalformedLineError("not a number of seconds")
    return float(min(max(value, lowest), highest))
