"""What the fake API server answers: the verbs that the controller uses, with preconditions and conflicts."""

import itertools
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from recovery import ports
from recovery.ports import EVENTS, JOBS, LEASES, NODES, PODS, PatchKind, Resource
from recovery.sim.api.patches import patched
from recovery.sim.api.status_error import StatusError
from tests.bench.scale.cluster import Cluster
from tests.bench.scale.fleet import Key, encode
from tests.bench.scale.templates import Object

_RESOURCES = {each.plural: each for each in vars(ports).values() if isinstance(each, Resource)}
_JSON = "application/json"
_SILENT_FOR = timedelta(seconds=60)
_LOG = b"step 1\nTraceback (most recent call last):\n  ...\nRuntimeError: NCCL error\n" * 10
Answer = tuple[int, bytes, str]

_decode = msgspec.json.Decoder().decode


def _not_found(plural: str, name: str) -> StatusError:
    return StatusError(404, "NotFound", f'{plural} "{name}" not found', kind=plural, name=name)


def _conflict(plural: str, name: str) -> StatusError:
    return StatusError(409, "Conflict", "the object has been modified", kind=plural, name=name)


class Requests:
    """Carries out requests in the cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._fleet = cluster.fleet

    def handle(
        self,
        verb: str,
        plural: str,
        key: Key,
        subresource: str,
        query: Mapping[str, str],
        content_type: str,
        body: bytes,
    ) -> Answer:
        """The answer. Raises StatusError."""
        sent = _decode(body) if body else {}
        if plural == "selfsubjectaccessreviews":
            return 201, encode({**sent, "metadata": {}, "status": {"allowed": True}}), _JSON
        if plural not in _RESOURCES:
            raise _not_found(plural, key[1])
        if verb == "list":
            return 200, self._list(plural, key[0], query), _JSON
        if plural == EVENTS.plural:
            return 201, encode(sent), _JSON
        if plural == LEASES.plural:
            return 200, self._lease(key), _JSON
        if plural == NODES.plural:
            return 200, self._node(key[1]), _JSON
        if plural == PODS.plural:
            return self._pod(verb, key, subresource, sent)
        if verb == "create":
            return 201, self._create(_RESOURCES[plural], key[0], sent), _JSON
        if key not in self._fleet.objects[plural]:
            raise _not_found(plural, key[1])
        if verb == "patch":
            return 200, self._patch(plural, key, sent, PatchKind(content_type)), _JSON
        found = self._fleet.objects[plural][key]
        if verb == "delete":
            self._delete(plural, key, sent)
        return 200, encode(found), _JSON

    def _list(self, plural: str, namespace: str, query: Mapping[str, str]) -> bytes:
        items = self._selected(plural, namespace, query.get("labelSelector", ""))
        limit, start, following = int(query.get("limit", "0")), int(query.get("continue", "0")), ""
        if limit:
            chosen = list(itertools.islice(items, start, start + limit + 1))
            following = f',"continue":"{start + limit}"' if len(chosen) > limit else ""
            items = iter(chosen[:limit])
        resource = _RESOURCES[plural]
        head = f'{{"kind":"{resource.kind}List","apiVersion":"{resource.api_version}","metadata":'
        metadata = f'{{"resourceVersion":"{self._fleet.version}"{following}}},"items":['
        return (head + metadata).encode() + b",".join(items) + b"]}"

    def _selected(self, plural: str, namespace: str, selector: str) -> Iterator[bytes]:
        """The controller selects the pods and the Jobs of one group by label, and everything else by namespace."""
        _, _, name = selector.partition("=")
        if plural not in (PODS.plural, JOBS.plural) or not name:
            yield from self._fleet.rendered(plural, namespace)
            return
        group = self._fleet.groups.get((namespace, name))
        if group is None or group.job is None:
            return
        if plural == JOBS.plural:
            yield encode(self._fleet.objects[plural][group.job_key])
        else:
            yield from (self._fleet.pod_bytes(pod) for pod in list(group.job.pods.values()))

    def _lease(self, key: Key) -> bytes:
        node = self._fleet.nodes.get(key[1])
        if node is None:
            raise _not_found(LEASES.plural, key[1])
        renewed = datetime.now(UTC) - (_SILENT_FOR if node.ready != "True" else timedelta())
        metadata = {"name": key[1], "namespace": key[0], "uid": node.uid, "resourceVersion": "5"}
        spec = {"holderIdentity": key[1], "leaseDurationSeconds": 40}
        return encode(
            {
                "apiVersion": LEASES.api_version,
                "kind": LEASES.kind,
                "metadata": {**metadata, "creationTimestamp": self._fleet.created},
                "spec": {**spec, "renewTime": renewed.strftime("%Y-%m-%dT%H:%M:%S.%fZ")},
            }
        )

    def _node(self, name: str) -> bytes:
        node = self._fleet.nodes.get(name)
        if node is None:
            raise _not_found(NODES.plural, name)
        return self._fleet.node_bytes(node)

    def _pod(self, verb: str, key: Key, subresource: str, sent: Object) -> Answer:
        pod = self._fleet.pods.get(key)
        if pod is None:
            raise _not_found(PODS.plural, key[1])
        if subresource == "log":
            return 200, _LOG, "text/plain"
        if verb == "delete":
            if sent.get("preconditions", {}).get("uid", pod.uid) != pod.uid:
                raise _conflict(PODS.plural, key[1])
            self._cluster.delete_pod(pod, sent.get("gracePeriodSeconds", 30))
        return 200, self._fleet.pod_bytes(pod), _JSON

    def _create(self, resource: Resource, namespace: str, sent: Object) -> bytes:
        key, plural = (namespace, sent["metadata"]["name"]), resource.plural
        if key in self._fleet.objects[plural]:
            raise StatusError(409, "AlreadyExists", f'{plural} "{key[1]}" already exists', kind=plural, name=key[1])
        self._fleet.objects[plural][key] = self._fleet.born(namespace, sent)
        return encode(self._fleet.changed(plural, key, "ADDED"))

    def _patch(self, plural: str, key: Key, sent: object, kind: PatchKind) -> bytes:
        before = self._fleet.objects[plural][key]
        after = patched(before, sent, kind)
        for precondition in ("uid", "resourceVersion"):
            if after["metadata"][precondition] != before["metadata"][precondition]:
                raise _conflict(plural, key[1])
        self._fleet.objects[plural][key] = after
        return encode(self._fleet.changed(plural, key))

    def _delete(self, plural: str, key: Key, sent: Object) -> None:
        metadata = self._fleet.objects[plural][key]["metadata"]
        for name, value in (sent.get("preconditions") or {}).items():
            if metadata[name] != value:
                raise _conflict(plural, key[1])
        if plural == JOBS.plural:
            group = self._fleet.groups[key[0], key[1].removesuffix("-node-0")]
            self._cluster.delete_job(group)
        else:
            self._fleet.changed(plural, key, "DELETED")
