"""The proof that a group recovers: what its latest recovery has shown, and under which setup."""

import hashlib
from collections.abc import Mapping
from datetime import datetime
from functools import cache

import msgspec

_DIGEST_LENGTH = 12


class ProvenSetup(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a recovery depends on, as hashes. An empty hash is not known, and shows no change."""

    runtime: str = ""
    """Of the sizes, the containers and the Job settings of the group. Birth settings do not change it."""
    policy: str = ""
    """Of the fields of the policy that decide."""
    image: str = ""
    """Of the digests of the images that the training containers of all members run."""

    def changes(self, since: "ProvenSetup") -> tuple[str, ...]:
        """The parts that are known to differ from an earlier setup, by the names of their fields."""
        now, then = (msgspec.structs.asdict(each) for each in (self, since))
        return tuple(name for name in now if now[name] and then[name] and now[name] != then[name])

    def covers(self, other: "ProvenSetup") -> bool:
        """Each part that is known of the other setup is known here."""
        mine, others = (msgspec.structs.asdict(each) for each in (self, other))
        return all(mine[name] or not others[name] for name in others)


class RecoveryProof(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A recovery that shows that the group recovers, from a drill or from an unplanned failure."""

    proven_at: datetime
    """When the recovery ended."""
    seconds: float
    """From the failure until the recovery ended."""
    incident: str
    """Id of the incident."""
    verified: bool = False
    """The training has confirmed the recovery. Ready pods only show that all ranks run."""
    source: str = ""
    """What shows the recovery, as in the incident."""
    step: int | None = None
    """The training step that the ranks continued from. None: not known, or it counts from the start of the
    processes."""
    run: str | None = None
    """Name of the RecoveryDrill that caused the failure. None: no drill did."""
    setup: ProvenSetup = ProvenSetup()
    """The policy when the incident opened, and the runtime and the image when it ended."""


def digest_of(*parts: object) -> str:
    """A short hash of records, tuples, mappings and plain values.

    Fields that have their default value are left out. So a field that a new version of the controller adds changes no
    hash.
    """
    text = msgspec.json.encode(_plain(parts), order="deterministic")
    return hashlib.sha256(text).hexdigest()[:_DIGEST_LENGTH]


def _plain(value: object) -> object:
    match value:
        case msgspec.Struct():
            return {
                name: _plain(given)
                for name, default in _defaults(type(value))
                if (given := getattr(value, name)) != default
            }
        case tuple() | list():
            return [_plain(each) for each in value]
        case Mapping():
            return {str(name): _plain(each) for name, each in value.items()}
        case _:
            return value


@cache
def _defaults(of: type[msgspec.Struct]) -> tuple[tuple[str, object], ...]:
    """The fields of a record with their default values."""
    return tuple(
        (each.name, each.default if each.default_factory is msgspec.NODEFAULT else each.default_factory())
        for each in msgspec.structs.fields(of)
    )
