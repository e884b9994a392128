"""What the server itself writes into an object's metadata."""

from datetime import datetime, timedelta
from typing import Any

from recovery.ports import Entropy
from recovery.sim.api.kinds.kind import Body

_GENERATED_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""No vowels, so that no suffix is a word (`k8s.io/apimachinery/pkg/util/rand`)."""
_GENERATED_LENGTH = 5
_GENERATED_NAME_MAX = 63

_SERVERS_OWN = ("creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation", "managedFields")
"""An update cannot change these: the stored values win (`BeforeUpdate` in apiserver's registry/rest)."""
_IDENTITY = ("name", "namespace", "resourceVersion", "uid")
_EMPTY_IS_ABSENT = ("annotations", "finalizers", "generateName", "labels", "ownerReferences")
"""Fields with `omitempty` in ObjectMeta. Custom resources have the same ObjectMeta."""


def timestamp(moment: datetime) -> str:
    """The moment in the format of `metav1.Time`, truncated to whole seconds."""
    return f"{moment.isoformat()[:19]}Z"


def micro_timestamp(moment: datetime) -> str:
    """The moment in the format of `metav1.MicroTime`."""
    return moment.isoformat(timespec="microseconds")[: -len("+00:00")] + "Z"


def moment_of(text: str) -> datetime:
    return datetime.fromisoformat(text)


def grace_of(seconds: int) -> timedelta:
    """A grace period as the server adds it: `time.Duration` holds int64 nanoseconds, so more than 292 years wrap."""
    nanoseconds = seconds * 1_000_000_000 % 2**64
    return timedelta(microseconds=(nanoseconds if nanoseconds < 2**63 else nanoseconds - 2**64) // 1000)


def uid_of(number: int) -> str:
    """The unique UID of the `number`-th object. As with real UIDs, their order says nothing about the objects' age."""
    return f"{number * 2654435761 % 2**32:08x}-0000-4000-8000-{number:012x}"


def generated_name(prefix: str, entropy: Entropy) -> str:
    """A name that begins with `prefix`. The prefix is cut so that the name is at most as long as a DNS label."""
    number = int(entropy.uniform(0, len(_GENERATED_LETTERS) ** _GENERATED_LENGTH))
    suffix = ""
    for _ in range(_GENERATED_LENGTH):
        number, index = divmod(number, len(_GENERATED_LETTERS))
        suffix += _GENERATED_LETTERS[index]
    return prefix[: _GENERATED_NAME_MAX - _GENERATED_LENGTH] + suffix


def settled(metadata: Body, before: Body) -> Body:
    """The metadata that an update stores: the fields of the server and the identity keep the values of `before`."""
    result = dict(metadata)
    for field in _SERVERS_OWN:
        if field in before:
            result[field] = before[field]
        else:
            result.pop(field, None)
    result |= {field: before[field] for field in _IDENTITY if field in before}
    drop_empty(result)
    return result


def drop_empty(metadata: Body) -> None:
    for field in _EMPTY_IS_ABSENT:
        if field in metadata and not metadata[field]:
            del metadata[field]


def copied(value: Any) -> Any:
    """A deep copy of a JSON value."""
    if isinstance(value, dict):
        return {name: copied(item) for name, item in value.items()}
    if isinstance(value, list):
        return [copied(item) for item in value]
    return value
