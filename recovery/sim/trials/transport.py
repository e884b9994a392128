"""The connection between a controller process and the API server, and all faults that can happen on it.

It takes the place of HTTP in the real program, below the retries of the production client and above its errors, so
both are exercised. Every message takes a moment to travel, drawn by key.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import aiohttp

from recovery.kube.errors import error_from_failure
from recovery.kube.http import REQUEST_SECONDS_MAX
from recovery.ports import ApiError, ApiRequest, Clock
from recovery.sim.api.client import answer, error_from, lines
from recovery.sim.api.server import ApiServer
from recovery.sim.api.status_error import StatusError
from recovery.sim.trials.controller_process import ControllerProcess
from recovery.sim.trials.controller_replica import Replica, never
from recovery.sim.trials.dice import Dice
from recovery.sim.trials.faults import FaultKind, TrialFault
from recovery.sim.trials.request_faults import RequestFaults
from recovery.sim.trials.trial_evidence import RequestRecord
from recovery.sim.trials.trial_log import TrialLog

Answer = tuple[bytes, ApiError | None]
"""What the sender receives: a body, or an error in its place."""

TRAVEL_SECONDS = (0.0005, 0.005)
"""Least and most, each way."""
LINE_SECONDS = (0.001, 0.02)
"""Least and most from a change until a watch reports it. Each stream has its own delay."""
GONE_LINE = (
    b'{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",'
    b'"message":"too old resource version","reason":"Expired","code":410}}'
)


class TrialTransport:
    """`ports.ApiClient` of one process, below its retries."""

    def __init__(
        self,
        process: ControllerProcess,
        replica: Replica,
        server: ApiServer,
        clock: Clock,
        faults: RequestFaults,
        log: TrialLog,
        seed: int,
    ) -> None:
        self._process = process
        self._replica = replica
        self._server = server
        self._clock = clock
        self._faults = faults
        self._log = log
        self._seed = seed

    # Requests.

    async def send(self, request: ApiRequest) -> bytes:
        await self._process.clock.thawed()
        await self._live()
        number = self._replica.requests
        self._replica.requests += 1
        dice = Dice(self._seed, self._replica.name, number)
        there, back = dice.between(*TRAVEL_SECONDS), dice.between(*TRAVEL_SECONDS)
        fault = self._faults.of_request(self._replica.name, number, request, dice)
        if fault is not None:
            fault = self._log.applied(fault, self._words(fault, request))
            await self._hit_process(fault)
        await self._clock.sleep(there)
        await self._live()
        body, error = await self._carried_out(request, number, fault)
        if fault is not None and fault.key.kind is FaultKind.PROCESS_KILL_AFTER:
            self._process.kill(fault.seconds)
        await self._clock.sleep(back)
        await self._process.clock.thawed()
        await self._live()
        if error is not None:
            raise error
        return body

    async def _hit_process(self, fault: TrialFault) -> None:
        match fault.key.kind:
            case FaultKind.PROCESS_KILL:
                self._process.kill(fault.seconds)
                await never()
            case FaultKind.PROCESS_FREEZE:
                self._process.clock.freeze(fault.seconds)
                await self._process.clock.thawed()
            case FaultKind.CLOCK_JUMP:
                self._process.clock.off_seconds = fault.seconds

    async def _carried_out(self, request: ApiRequest, number: int, fault: TrialFault | None) -> Answer:
        kind = fault.key.kind if fault is not None else None
        match kind:
            case FaultKind.CONFLICT:
                name = request.name or ""
                words = "the object has been modified"
                failure = StatusError(409, "Conflict", words, kind=request.resource.plural, name=name)
            case FaultKind.TOO_MANY_REQUESTS:
                assert fault is not None
                failure = StatusError(
                    429, "TooManyRequests", "the server is busy", retry_after_seconds=max(1, round(fault.seconds))
                )
            case FaultKind.SERVER_ERROR:
                failure = StatusError(500, "InternalError", "etcdserver: leader changed")
            case FaultKind.SERVER_ERROR_APPLIED:
                self._apply(request, number, fault)
                lost = StatusError(500, "InternalError", "etcdserver: request timed out")
                return b"", error_from(request, lost)
            case FaultKind.TIMEOUT | FaultKind.TIMEOUT_APPLIED:
                if kind is FaultKind.TIMEOUT_APPLIED:
                    self._apply(request, number, fault)
                else:
                    self._record(request, number, None, fault, applied=False)
                await self._clock.sleep(REQUEST_SECONDS_MAX)
                return b"", error_from_failure(request, TimeoutError())
            case FaultKind.DELAYED:
                assert fault is not None
                return await self._delayed(request, number, fault)
            case _:
                return self._apply(request, number, fault)
        self._record(request, number, failure.code, fault, applied=False)
        return b"", error_from(request, failure)

    async def _delayed(self, request: ApiRequest, number: int, fault: TrialFault) -> Answer:
        """The request arrives late, even if its sender has died or given up by then."""
        arrived: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def arrive() -> None:
            outcome = self._apply(request, number, fault)
            if not arrived.done():
                arrived.set_result(outcome)

        asyncio.get_running_loop().call_later(fault.seconds, arrive)
        try:
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                return await arrived
        except TimeoutError:
            return b"", error_from_failure(request, TimeoutError())

    def _apply(self, request: ApiRequest, number: int, fault: TrialFault | None) -> Answer:
        try:
            body = answer(self._server, self._replica.name, request)
        except StatusError as failure:
            self._record(request, number, failure.code, fault, applied=False)
            return b"", error_from(request, failure)
        self._record(request, number, 200, fault, applied=request.writes)
        return body, None

    def _record(
        self, request: ApiRequest, number: int, code: int | None, fault: TrialFault | None, *, applied: bool
    ) -> None:
        self._log.requested(
            RequestRecord(
                at=self._clock.now(),
                actor=self._replica.name,
                process=self._process.number,
                number=number,
                request=request,
                code=code if fault is None else self._heard(code, fault),
                applied=applied,
                revision=self._server.revision,
                fault=fault,
            )
        )

    def _heard(self, code: int | None, fault: TrialFault) -> int | None:
        """The code that the sender receives if the server answers with `code`. None: no response."""
        match fault.key.kind:
            case FaultKind.SERVER_ERROR_APPLIED:
                return 500
            case FaultKind.TIMEOUT | FaultKind.TIMEOUT_APPLIED | FaultKind.PROCESS_KILL_AFTER:
                return None
            case FaultKind.DELAYED if self._process.how or fault.seconds > REQUEST_SECONDS_MAX:
                return None  # The sender has died, or given up.
        return code

    def _words(self, fault: TrialFault, request: ApiRequest) -> str:
        lasting = f" for {fault.seconds:g} s" if fault.seconds else ""
        where = "line" if request.verb == "watch" else "request"
        return f"{self._replica.name}: {fault.key.kind}{lasting} at its {where} {fault.key.number}, {request}"

    async def _live(self) -> None:
        """Never returns if the process has ended."""
        if self._process.how:
            await never()

    # Watches.

    async def watch(self, request: ApiRequest) -> AsyncGenerator[bytes, None]:
        await self._process.clock.thawed()
        await self._live()
        dice = Dice(self._seed, f"{self._replica.name}'s {request.resource.plural}", self._replica.lines)
        late_seconds = own_seconds = dice.between(*LINE_SECONDS)
        delivered_at_seconds = float("-inf")
        try:
            async with aclosing(lines(self._server, request)) as coming:
                async for line in coming:
                    if self._faults.over():
                        late_seconds = own_seconds  # The stream lags no longer.
                    # Lines that came in during the last delay have no delay of their own.
                    if self._clock.monotonic_seconds() > delivered_at_seconds:
                        await self._clock.sleep(late_seconds)
                        delivered_at_seconds = self._clock.monotonic_seconds()
                    await self._process.clock.thawed()
                    await self._live()
                    number = self._replica.lines
                    self._replica.lines += 1
                    fault = self._faults.of_line(self._replica.name, number)
                    if fault is None:
                        yield line
                        continue
                    fault = self._log.applied(fault, self._words(fault, request))
                    match fault.key.kind:
                        case FaultKind.WATCH_DISCONNECT:
                            raise error_from_failure(request, aiohttp.ClientPayloadError())
                        case FaultKind.WATCH_EXPIRED:
                            yield GONE_LINE
                            return
                        case FaultKind.WATCH_DUPLICATE:
                            yield line
                        case FaultKind.WATCH_STALL:
                            await self._process.clock.sleep(fault.seconds)
                            await self._live()
                        case FaultKind.WATCH_LAG:
                            late_seconds = fault.seconds
                    yield line
        except StatusError as failure:
            raise error_from(request, failure) from failure
