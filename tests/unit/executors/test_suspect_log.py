"""One read of a log. It never fails: without a log it returns a reason."""

import pytest

from recovery.core.model.suspect_log import LOG_READ_BYTES_MAX, LogAbsence, SuspectLog
from recovery.executors.suspect_log import read_log
from recovery.ports import (
    PODS,
    ApiError,
    ApiRequest,
    ForbiddenError,
    NotFoundError,
    RefusedError,
    TryLaterError,
    UnauthorizedError,
)
from tests.unit.fake_api import FakeApi

KNOWN = SuspectLog("train-node-0-2", "node", previous=True, termination_message="CUDA error")


class LogApi(FakeApi):
    """Answers every request with `log`."""

    def __init__(self, log: bytes = b"") -> None:
        super().__init__()
        self.log = log
        self.asked: list[ApiRequest] = []

    async def answer(self, request: ApiRequest) -> bytes:
        self.asked.append(request)
        return self.log


async def test_it_asks_for_the_last_lines_of_that_instance_and_is_sent_once() -> None:
    api = LogApi(b"step 7\nNCCL error\n")
    found = await read_log(api, "ml", KNOWN)
    [request] = api.asked
    assert request.url("") == (
        "/api/v1/namespaces/ml/pods/train-node-0-2/log?container=node&previous=true&tailLines=64&limitBytes=262144"
    )
    assert request.once
    assert (found.tail, found.termination_message, found.absent) == ("step 7\nNCCL error", "CUDA error", None)


async def test_the_present_instance_is_what_is_read_if_previous_is_not_asked_for() -> None:
    api = LogApi(b"x")
    await read_log(api, "ml", SuspectLog("p", "node"))
    assert "previous" not in api.asked[0].query


@pytest.mark.parametrize(
    ("error", "absent"),
    [
        (ForbiddenError("no", status=403), LogAbsence.FORBIDDEN),
        (UnauthorizedError("no", status=401), LogAbsence.FORBIDDEN),
        (NotFoundError("no pod", status=404), LogAbsence.NOT_FOUND),
        (RefusedError("previous terminated container not found", status=400), LogAbsence.NO_LOGS),
        (TryLaterError("dial tcp 10.0.0.1:10250: no route", status=500), LogAbsence.UNREACHABLE),
        (TryLaterError("no answer"), LogAbsence.UNREACHABLE),
    ],
)
async def test_each_refusal_is_a_reason_and_the_termination_message_stays(error: ApiError, absent: LogAbsence) -> None:
    api = LogApi()
    api.next("get", PODS, error)
    found = await read_log(api, "ml", KNOWN)
    assert (found.absent, found.tail, found.termination_message) == (absent, "", "CUDA error")
    assert len(api.requests) == 1


@pytest.mark.parametrize("log", [b"", b"\n\n", b"unable to retrieve container logs for containerd://4f2a\n"])
async def test_an_empty_log_is_none(log: bytes) -> None:
    assert (await read_log(LogApi(log), "ml", KNOWN)).absent is LogAbsence.NO_LOGS


class RestartedApi(FakeApi):
    """The kubelet has just restarted the container: only the previous instance has written anything."""

    async def answer(self, request: ApiRequest) -> bytes:
        return b"NCCL error\n" if "previous" in request.query else b""


async def test_a_container_that_was_restarted_meanwhile_is_read_as_the_instance_before() -> None:
    found = await read_log(RestartedApi(), "ml", SuspectLog("p", "node"))
    assert (found.tail, found.previous, found.absent) == ("NCCL error", True, None)


async def test_where_neither_instance_has_written_there_are_no_logs() -> None:
    api = LogApi(b"")
    found = await read_log(api, "ml", SuspectLog("p", "node"))
    assert (found.absent, found.previous, len(api.asked)) == (LogAbsence.NO_LOGS, False, 2)


async def test_a_log_that_was_cut_at_the_limit_says_so() -> None:
    """`limitBytes` cuts the end, so these lines are not the last ones."""
    assert (await read_log(LogApi(b"x\n" * (LOG_READ_BYTES_MAX // 2)), "ml", KNOWN)).incomplete
    assert not (await read_log(LogApi(b"x\n" * 64), "ml", KNOWN)).incomplete
