"""Pods as a kubelet needs them: only the fields that it uses are decoded.

A watch on hundreds of pods echoes each of our own status writes, with managedFields. Decoding only a few fields keeps
that cheap.
"""

import msgspec

COMPLETION_INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})


class PodOwner(msgspec.Struct, frozen=True, rename="camel"):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMetadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[PodOwner, ...] = ()
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None


class FieldReference(msgspec.Struct, frozen=True, rename="camel"):
    field_path: str


class ValueSource(msgspec.Struct, frozen=True, rename="camel"):
    field_ref: FieldReference | None = None
    """None: the value comes from a source that is not modelled."""


class EnvironmentVariable(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    value: str = ""
    """The literal value. Empty if `value_from` is set."""
    value_from: ValueSource | None = None


class ReadinessProbe(msgspec.Struct, frozen=True, rename="camel"):
    """The workload decides whether a probe succeeds. The kubelet only knows how often it runs."""

    period_seconds: int = 10


class RestartExitCodes(msgspec.Struct, frozen=True):
    operator: str
    """In or NotIn."""
    values: tuple[int, ...] = ()

    def match(self, code: int) -> bool:
        return (code in self.values) == (self.operator == "In")


class ContainerRestartRule(msgspec.Struct, frozen=True, rename="camel"):
    """One of a container's `restartPolicyRules` (KEP-5307)."""

    action: str
    """Restart. RestartAllContainers is not modelled."""
    exit_codes: RestartExitCodes


class VolumeMount(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""


class ImageSource(msgspec.Struct, frozen=True):
    reference: str = ""


class PodVolume(msgspec.Struct, frozen=True):
    name: str = ""
    image: ImageSource | None = None
    """None: it has no image."""


class PodContainer(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    image: str = ""
    env: tuple[EnvironmentVariable, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()
    readiness_probe: ReadinessProbe | None = None
    """None: the container is ready as soon as it runs."""
    restart_policy: str | None = None
    """None: the pod's policy applies. An init container with Always is a native sidecar (KEP-753)."""
    restart_policy_rules: tuple[ContainerRestartRule, ...] = ()

    def restarts(self, pod_policy: str, code: int) -> bool:
        """Whether it is restarted after this exit code (`ContainerShouldRestart` in `pkg/api/v1/pod/util.go`)."""
        for rule in self.restart_policy_rules:
            if rule.exit_codes.match(code):
                if rule.action != "Restart":
                    raise ValueError(f"container {self.name}: the restart rule's action {rule.action} is not modelled")
                return True
        policy = self.restart_policy or pod_policy
        return policy == "Always" or (policy == "OnFailure" and code != 0)

    def sets(self, name: str) -> bool:
        """The container's spec has an environment variable of that name, with any value."""
        return any(variable.name == name for variable in self.env)


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""
    restart_policy: str = "Always"
    termination_grace_period_seconds: int = 30
    service_account_name: str = "default"
    containers: tuple[PodContainer, ...] = ()
    init_containers: tuple[PodContainer, ...] = ()
    volumes: tuple[PodVolume, ...] = ()

    def images_of(self, container: PodContainer) -> tuple[str, ...]:
        """What the container needs, in the order in which the kubelet asks for it: its image volumes, then its own."""
        mounted = {mount.name for mount in container.volume_mounts}
        volumes = (each.image.reference for each in self.volumes if each.name in mounted and each.image is not None)
        return (*volumes, container.image)


class PodStatus(msgspec.Struct, frozen=True):
    phase: str = ""


class Pod(msgspec.Struct, frozen=True):
    metadata: ObjectMetadata = ObjectMetadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def job_uid(self) -> str | None:
        """UID of the controlling Job. None: no Job controls this pod."""
        owners = self.metadata.owner_references
        return next((owner.uid for owner in owners if owner.controller and owner.kind == "Job"), None)

    @property
    def job_name(self) -> str:
        """Name of the controlling Job. Empty: no Job controls this pod."""
        owners = self.metadata.owner_references
        return next((owner.name for owner in owners if owner.controller and owner.kind == "Job"), "")

    @property
    def index(self) -> int | None:
        """Completion index. None: the pod does not belong to an Indexed Job."""
        text = self.metadata.labels.get(COMPLETION_INDEX_LABEL)
        return None if text is None else int(text)


class NodeTaint(msgspec.Struct, frozen=True):
    key: str


class Node(msgspec.Struct, frozen=True):
    class Spec(msgspec.Struct, frozen=True):
        taints: tuple[NodeTaint, ...] = ()

    metadata: ObjectMetadata = ObjectMetadata()
    spec: Spec = Spec()


class PodListMetadata(
    msgspec.Struct, frozen=True, rename={"resource_version": "resourceVersion", "next_page": "continue"}
):
    resource_version: str = ""
    next_page: str = ""


class PodList(msgspec.Struct, frozen=True):
    metadata: PodListMetadata = PodListMetadata()
    items: tuple[Pod, ...] = ()


class PodWatchBookmark(msgspec.Struct, frozen=True):
    """A watch's bookmark. The rest of its object is empty, and the pod's list of containers is null."""

    metadata: ObjectMetadata


class PodEvent(msgspec.Struct, frozen=True):
    """One line of a watch. The object is a Pod, a bookmark, or in an ERROR a Status."""

    type: str
    object: msgspec.Raw
