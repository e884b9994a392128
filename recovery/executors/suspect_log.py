"""Reads the log of a suspect, bounded in size. A failed read is not retried."""

import msgspec

from recovery import api_verbs
from recovery.core.model.suspect_log import LOG_LINES_MAX, LOG_READ_BYTES_MAX, LogAbsence, SuspectLog, tail_of
from recovery.ports import ApiClient, ApiError, NotFoundError, RefusedError

_UNABLE = b"unable to retrieve container logs for "
"""What a kubelet answers, with status 200, instead of a log that the runtime has removed."""


async def read_log(api: ApiClient, namespace: str, known: SuspectLog) -> SuspectLog:
    """The log with its tail, or with the reason why it has none. Raises no ApiError.

    If the current instance has written nothing, the kubelet has restarted the container since it was reported as
    terminated. The failed instance is then the previous one.
    """
    found = await _read(api, namespace, known)
    if found.absent is not LogAbsence.NO_LOGS or known.previous:
        return found
    previous = await _read(api, namespace, msgspec.structs.replace(known, previous=True))
    return found if previous.absent is not None else previous


async def _read(api: ApiClient, namespace: str, known: SuspectLog) -> SuspectLog:
    try:
        raw = await api_verbs.pod_log(
            api,
            known.pod,
            namespace=namespace,
            container=known.container,
            previous=known.previous,
            tail_lines=LOG_LINES_MAX,
            limit_bytes=LOG_READ_BYTES_MAX,
        )
    except ApiError as error:
        return msgspec.structs.replace(known, absent=_why(error))
    one_line = raw.count(b"\n", 0, -1) == 0
    tail = "" if one_line and raw.startswith(_UNABLE) else tail_of(raw[:LOG_READ_BYTES_MAX])
    if not tail:
        return msgspec.structs.replace(known, absent=LogAbsence.NO_LOGS)
    return msgspec.structs.replace(known, tail=tail, incomplete=len(raw) >= LOG_READ_BYTES_MAX)


def _why(error: ApiError) -> LogAbsence:
    if error.status in {401, 403}:
        return LogAbsence.FORBIDDEN
    if isinstance(error, NotFoundError):
        return LogAbsence.NOT_FOUND
    # The kubelet answers 400 for a container that has not started, or has no previous instance.
    return LogAbsence.NO_LOGS if isinstance(error, RefusedError) else LogAbsence.UNREACHABLE
