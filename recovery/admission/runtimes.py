"""The runtime of a TrainJob, read from the API server at the moment when the job is judged.

No cache: what is not in one may have been made a moment ago, together with the job. And no waiting: a runtime that is
not had in time is not known, and the job is admitted without it.
"""

import asyncio
import json

import structlog

from recovery import api_verbs
from recovery.admission.launches import Body, runtime_name
from recovery.ports import ApiClient, ApiError, NotFoundError

READ_SECONDS_MAX = 1.5
"""Well below the webhooks' timeoutSeconds (manifests/admission/launch): an answer that comes late is none."""

_log = structlog.get_logger("recovery.admission")


class Runtimes:
    """Those of the cluster."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def of(self, body: Body) -> Body | None:
        """None: the object has none, or it cannot be read."""
        wanted = runtime_name(body)
        if wanted is None:
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
