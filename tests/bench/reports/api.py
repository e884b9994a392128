"""What the fake API server of `tests.bench.scale` needs besides, so that the controller answers agents and elects."""

import base64
import json
import time
from collections.abc import Mapping

from recovery.ports import CLUSTER_RECOVERY_POLICIES, CONFIG_MAPS, LEASES, PatchKind
from recovery.rendezvous.authority import CA_KEY, NAME, SECRETS
from recovery.rendezvous.tokens import AUDIENCE, TOKEN_REVIEWS
from recovery.sim.api.status_error import StatusError
from tests.bench.scale.fleet import Fleet, Key, Pod, encode
from tests.bench.scale.requests import Answer, Requests

OWN_NAMESPACE = "recovery-system"
_OF_THE_CONTROLLER = (SECRETS.plural, CONFIG_MAPS.plural, LEASES.plural)
_JSON = "application/json"


def token_of(pod: Pod, identity: str = "first") -> str:
    """A token as the kubelet projects it into that pod, without a signature. Each `identity` is another token."""
    claims = {
        "aud": [AUDIENCE],
        "exp": time.time() + 3600,
        "jti": identity,
        "pod": pod.name,
        "uid": pod.uid,
        "namespace": pod.job.group.namespace,
        "padding": "x" * 600,  # a real one has some 1,200 bytes
    }
    parts = ({"alg": "RS256"}, claims)
    return ".".join(
        (*(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts), "s")
    )


def prepare(fleet: Fleet) -> None:
    """What the component of the agents has applied, and a policy that lets jobs restart in place."""
    for resource in (SECRETS, CONFIG_MAPS):
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": NAME}}
        fleet.objects[resource.plural][OWN_NAMESPACE, NAME] = fleet.born(OWN_NAMESPACE, body)
    fleet.objects[CLUSTER_RECOVERY_POLICIES.plural]["", "all"]["spec"]["inPlace"] = {"enabled": True}


def authority(fleet: Fleet) -> str:
    """What the leader has published for agents. Empty: nothing yet."""
    config_map = fleet.objects[CONFIG_MAPS.plural][OWN_NAMESPACE, NAME]
    return str(config_map.get("data", {}).get(CA_KEY, ""))


class AgentRequests(Requests):
    """Reviews tokens, and keeps the Secret, the ConfigMap and the Lease of the controller."""

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
        if plural == TOKEN_REVIEWS.plural:
            return 201, _review(json.loads(body)["spec"]), _JSON
        if key[0] == OWN_NAMESPACE and plural in _OF_THE_CONTROLLER and verb in ("get", "create", "patch"):
            return 200, self._own(verb, plural, key, content_type, body), _JSON
        return super().handle(verb, plural, key, subresource, query, content_type, body)

    def _own(self, verb: str, plural: str, key: Key, content_type: str, body: bytes) -> bytes:
        if verb == "create":
            return self._create(LEASES, OWN_NAMESPACE, json.loads(body))
        if key not in self._fleet.objects[plural]:
            raise StatusError(404, "NotFound", f'{plural} "{key[1]}" not found', kind=plural, name=key[1])
        if verb == "get":
            return encode(self._fleet.objects[plural][key])
        return self._patch(plural, key, json.loads(body), PatchKind(content_type))


def _review(spec: Mapping[str, str]) -> bytes:
    _, claims, _ = spec["token"].split(".")
    said = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    extra = {
        "authentication.kubernetes.io/pod-name": [said["pod"]],
        "authentication.kubernetes.io/pod-uid": [said["uid"]],
    }
    user = {"username": f"system:serviceaccount:{said['namespace']}:default", "extra": extra}
    status = {"authenticated": True, "user": user, "audiences": spec["audiences"]}
    return encode({"kind": TOKEN_REVIEWS.kind, "apiVersion": TOKEN_REVIEWS.api_version, "status": status})
