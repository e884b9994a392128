"""What the launch of a container shows about its program: its command, its arguments and its variables, as JSON.

A Job is decoded again with each change of its status, and its launch never changes. So the text is parsed only once.
"""

from functools import lru_cache

import msgspec

from recovery.core.model.collective import Collective, LaunchFacts
from recovery.launch.collective import shown_by
from recovery.launch.places import Place
from recovery.launch.views import Container, EnvVar

_TEXT_MAX = 32_768
"""Bytes of a launch that is read. It bounds the memory for the texts of tenants, and no plain launch is longer."""
_REMEMBERED_MAX = 256
"""Launches. A fleet has few different ones, and all Jobs of a group have the same."""
_NOWHERE = Place(0)


class _Variable(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    value: str = ""
    value_from: msgspec.Raw = msgspec.Raw(b"null")


_decode_words = msgspec.json.Decoder(tuple[str, ...] | None).decode
_decode_variables = msgspec.json.Decoder(tuple[_Variable, ...] | None).decode


def launch_facts(command: msgspec.Raw, args: msgspec.Raw, env: msgspec.Raw) -> LaunchFacts | None:
    """What these fields of a container show. None: nothing, or more text than is read."""
    texts = bytes(command), bytes(args), bytes(env)
    return _launch_facts(*texts) if sum(map(len, texts)) <= _TEXT_MAX else None


@lru_cache(maxsize=_REMEMBERED_MAX)
def _launch_facts(command: bytes, args: bytes, env: bytes) -> LaunchFacts | None:
    try:
        container = Container(
            name="",
            place=_NOWHERE,
            command=_decode_words(command) or (),
            args=_decode_words(args) or (),
            env=tuple(_variable(each) for each in _decode_variables(env) or ()),
        )
    except ValueError:  # The launch is an optional sign. A wrong one must not make the Job unreadable.
        return None
    found = shown_by(container)
    if found is None:
        return None
    return LaunchFacts(Collective(found.collective.value), found.by, found.starts_all)


def _variable(given: _Variable) -> EnvVar:
    from_elsewhere = bytes(given.value_from) != b"null"
    return EnvVar(given.name, _NOWHERE, None if from_elsewhere else given.value)
