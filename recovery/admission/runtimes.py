"""The runtime of a TrainJob, read from the API server when the job is judged.

There is no cache: it might lack a runtime that was created together with the job a moment ago. There is no waiting
either: if the runtime does not arrive in time, it is unknown, and the job is judged without it.

Any client of the webhooks can cause reads, so their rate is limited. Above the limit, a runtime is unknown too.
"""

import asyncio
import json

import structlog

from recovery import api_verbs
from recovery.admission.launches import Body, runtime_name
from recovery.admission.read_limit import ReadLimit
from recovery.ports import ApiClient, ApiError, Clock, NotFoundError

READ_SECONDS_MAX = 1.5
"""Well below the webhooks' timeoutSeconds (manifests/admission/launch): a late answer is ignored."""
READS_PER_SECOND_MAX = 20.0
"""Also the largest burst. Each read is a get of one object by its name."""

_log = structlog.get_logger("recovery.admission")


class Runtimes:
    """The runtimes of the cluster."""

    def __init__(self, client: ApiClient, clock: Clock) -> None:
        self._client = client
        complaint = "too many TrainJobs at once: what depends on their runtimes is not judged"
        self._limit = ReadLimit(clock, READS_PER_SECOND_MAX, complaint)

    async def of(self, body: Body, namespace: str) -> Body | None:
        """The runtime of the object. `namespace`: that of the request. A namespaced runtime is read from there.

        None: the object has no runtime, or it cannot be read.
        """
        wanted = runtime_name(body, namespace)
        if wanted is None or not self._limit.allows():
            return None
        try:
            async with asyncio.timeout(READ_SECONDS_MAX):
                raw = await api_verbs.get(
                    self._client, wanted.resource, wanted.name, namespace=wanted.namespace or None
                )
        except NotFoundError:
            return None  # Trainer reports that itself
        except (ApiError, TimeoutError) as error:
            _log.warning(
                "the runtime of a TrainJob could not be read: what depends on it is not judged",
                runtime=f"{wanted.resource.kind} {wanted.name}",
                error=str(error) or "no answer in time",
            )
            return None
        found: Body = json.loads(raw)
        return found
