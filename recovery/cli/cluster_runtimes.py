"""Reads the runtimes of given TrainJobs from a cluster: `--cluster` of `recovery lint` and `explain-launch`."""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from recovery import api_verbs
from recovery.cli.connection import CommandError, chosen_namespace, connect, error_words
from recovery.cli.exit_codes import print_error
from recovery.cli.manifests import Manifests, RuntimeSource
from recovery.cli.neighbour_versions import untested_versions
from recovery.decoding import decoded, shallow
from recovery.kube.session import SessionError
from recovery.launch.documents import Document, document_of
from recovery.launch.kinds import CLUSTER_TRAINING_RUNTIME, TRAINING_RUNTIME
from recovery.launch.launch import Launch
from recovery.launch.lint import subjects
from recovery.ports import TRAIN_JOBS, ApiClient, ApiError, NoSuchResourceError, NotFoundError, Resource

TRAINING_RUNTIMES = replace(TRAIN_JOBS, plural="trainingruntimes", kind=TRAINING_RUNTIME.name)
CLUSTER_TRAINING_RUNTIMES = replace(
    TRAIN_JOBS, plural="clustertrainingruntimes", kind=CLUSTER_TRAINING_RUNTIME.name, namespaced=False
)
_RESOURCES = {each.kind: each for each in (TRAINING_RUNTIMES, CLUSTER_TRAINING_RUNTIMES)}


def _decode_body(raw: msgspec.Raw) -> dict[str, Any]:
    """The object, without values nested deeper than any field that is judged."""
    return msgspec.json.decode(shallow(bytes(raw)), type=dict[str, Any])


class _Wanted(NamedTuple):
    """A runtime that a TrainJob names and no file has."""

    resource: Resource
    namespace: str
    """The namespace of the TrainJob. Empty: it names none, or the runtime is cluster-scoped."""
    name: str


async def with_runtimes(
    manifests: Manifests, cluster: RuntimeSource, work: Callable[[Manifests], int], failed: Callable[[str], None]
) -> int:
    """Do the work on the manifests and on those runtimes of their TrainJobs that the cluster has. A missing one is a
    line on stderr. Raises ApiError, SessionError and CommandError, after a call of `failed`."""
    wanted = dict.fromkeys(_wanted(manifests))
    if wanted:
        try:
            async with connect(cluster.server) as connection:
                namespace = await chosen_namespace(cluster.server, cluster.namespace)
                found = [each async for each in _read(connection.client, wanted, manifests, namespace)]
                for line in await untested_versions(connection.client):
                    print_error(line)
        except (ApiError, SessionError, CommandError) as error:
            failed(error_words(error) if isinstance(error, ApiError) else str(error))
            raise
        manifests = replace(manifests, documents=(*manifests.documents, *found))
    return work(manifests)


def _wanted(manifests: Manifests) -> Iterator[_Wanted]:
    for subject in subjects(manifests.documents):
        group = subject.group
        if not isinstance(group, Launch) or group.train_job is None or group.runtime is not None:
            continue
        job, reference = group.train_job, group.train_job.runtime
        resource = _RESOURCES.get(reference.kind or CLUSTER_TRAINING_RUNTIME.name)
        if resource is not None and reference.name and reference.api_group in ("", resource.group):
            yield _Wanted(resource, job.namespace if resource.namespaced else "", reference.name)


async def _read(
    client: ApiClient, wanted: dict[_Wanted, None], manifests: Manifests, namespace: str
) -> AsyncIterator[Document]:
    """The runtimes that the cluster has. `namespace`: for TrainJobs that name none."""
    number = manifests.documents[-1].number
    for each in wanted:
        within = (each.namespace or namespace) if each.resource.namespaced else None
        try:
            body = decoded(
                each.resource, _decode_body, await api_verbs.get(client, each.resource, each.name, namespace=within)
            )
        except NotFoundError:
            print_error(f"the cluster has no {each.resource.kind} {f'{within}/' if within else ''}{each.name}")
            continue
        except NoSuchResourceError as error:
            raise CommandError("Kubeflow Trainer is not installed in the cluster, so it has no runtimes") from error
        # The namespace is that of the TrainJob's file, so that the two match.
        metadata = body.get("metadata")
        body["metadata"] = {**(metadata if isinstance(metadata, dict) else {}), "namespace": each.namespace}
        number += 1
        yield document_of(body, number=number)
