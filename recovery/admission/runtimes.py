"""The runtime of a TrainJob, read from the API server at the moment when the job is judged.

No cache: what is not in one may have been made a moment ago, together with the job. And no waiting: a runtime that is
not had in time is not known, and the job is admitted without it.

Any client of the webhooks can cause reads, so their rate is limited. Above it a runtime is not known either.
"""

import asyncio
import json

import structlog

from recovery import api_verbs
from recovery.admission.launches import Body, runtime_name
from recovery.admission.read_limit import ReadLimit
from recovery.ports import ApiClient, ApiError, Clock, NotFoundError

READ_SECONDS_MAX = 1.5
"""Well below the webhooks' timeoutSeconds (manifests/admission/launch): an answer that comes late is none."""
READS_PER_SECOND_MAX = 20.0
"""And as many at once. Each is a get of one object by its name."""

_log = structlog.get_logger("recovery.admission")


class Runtimes:
    """Those of the cluster."""

    def __init__(self, client: ApiClient, clock: Clock) -> None:
        self._client = client
        complaint = "too many TrainJobs at once: what depends on their runtimes is not judged"
        self._limit = ReadLimit(clock, READS_PER_SECOND_MAX, complaint)

    async def of(self, body: Body, namespace: str) -> Body | None:
        """`namespace`: of the request that carries the object. A runtime is read from there, or from the cluster.

        None: the object has none, or it cannot be read.
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
            return None  # Trainer says so itself
        except (ApiError, TimeoutError) as error:
            _log.warning(
                "the runtime of a TrainJob could not be read: what depends on it is not judged",
                runtime=f"{wanted.resource.kind} {wanted.name}",
                error=str(error) or "no answer in time",
            )
            return None
        found: Body = json.loads(raw)
        return found
