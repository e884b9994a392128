"""Whether Trainer, JobSet or Kueue run in a version that no test of this program has run beside.

The API shows no version: CRDs and webhooks are the same from one release to the next. The only sign is the tag of the
image in the Deployment of their manager, or its label `app.kubernetes.io/version`, which the Helm charts set. A
digest, or a tag of one's own, shows nothing, and then nothing is said. Nor is anything said to a user who may not list
Deployments.
"""

import re
from collections.abc import Iterator

import msgspec

from recovery import api_verbs
from recovery.kube.response_envelopes import read_page
from recovery.ports import UNDECODABLE, ApiClient, ApiError, Resource

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
_NAME, _VERSION = "app.kubernetes.io/name", "app.kubernetes.io/version"
_TESTED = {
    "trainer": ("Trainer", (2, 3)),
    "kubeflow-trainer": ("Trainer", (2, 3)),
    "jobset": ("JobSet", (0, 12)),
    "kueue": ("Kueue", (0, 19)),
}
"""By the label of the name: the newest release that the tests run beside. `docs/install.md` says the same."""
_IMAGES = ("trainer-controller-manager", "jobset", "kueue")
"""The last parts of the images of their managers."""
_RELEASE = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})\.[0-9]{1,4}")
"""The tag of a release. One with more after the numbers, such as `v0.20.0-devel`, is none."""


class _Labels(msgspec.Struct, frozen=True):
    name: str = msgspec.field(name=_NAME, default="")
    version: str = msgspec.field(name=_VERSION, default="")


class _Metadata(msgspec.Struct, frozen=True):
    name: str
    namespace: str = ""
    labels: _Labels = _Labels()


class _Container(msgspec.Struct, frozen=True):
    image: str = ""


class _PodSpec(msgspec.Struct, frozen=True):
    containers: tuple[_Container, ...] = ()


class _Template(msgspec.Struct, frozen=True):
    spec: _PodSpec = _PodSpec()


class _Spec(msgspec.Struct, frozen=True):
    template: _Template = _Template()


class _Deployment(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: _Spec = _Spec()


async def untested_versions(client: ApiClient) -> tuple[str, ...]:
    """One sentence for each of them that is newer than what was tested. Raises no ApiError."""
    selector = f"{_NAME} in ({','.join(sorted(_TESTED))})"
    try:
        page = read_page(DEPLOYMENTS, await api_verbs.list_page(client, DEPLOYMENTS, label_selector=selector))
    except ApiError:
        return ()
    return tuple(dict.fromkeys(words for raw in page.items or () for words in _words(raw)))


def _words(raw: msgspec.Raw) -> Iterator[str]:
    try:
        found = msgspec.json.decode(raw, type=_Deployment)
    except UNDECODABLE:
        return
    labels = found.metadata.labels
    if labels.name not in _TESTED:
        return
    title, tested = _TESTED[labels.name]
    for version in filter(None, (*map(_tag, found.spec.template.spec.containers), labels.version)):
        release = _RELEASE.fullmatch(version)
        if release is None:
            continue
        if (int(release[1]), int(release[2])) > tested:
            yield (
                f"{title} {version.removeprefix('v')} is untested with this version, which is tested with "
                f"{tested[0]}.{tested[1]} (Deployment {found.metadata.namespace}/{found.metadata.name})"
            )
        return


def _tag(container: _Container) -> str:
    """The tag of the manager's image. Empty: it has none, or it is the image of another container."""
    name, _, tag = container.image.partition("@")[0].rpartition("/")[2].partition(":")
    return tag if name in _IMAGES else ""
