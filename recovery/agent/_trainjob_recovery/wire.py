"""The lines between members and the barrier: JSON of at most 8 KiB, and the proofs that both sides know the key."""

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .messages import (
    Arrived,
    Beat,
    Challenge,
    Done,
    ExitAgent,
    Failed,
    Failure,
    Finished,
    Hello,
    Joined,
    Leaving,
    Message,
    Permit,
    Proof,
    Start,
    Started,
    Steps,
    StopEpoch,
    Stopped,
    Welcome,
)

VERSION = 1
LINE_LIMIT_BYTES = 8192
MESSAGE_LIMIT = 300
"""Characters of a failure's message."""
_LARGEST = 2**53
"""JSON readers agree on the integers below it."""
_SECONDS_LIMIT = 86_400.0


class WireError(Exception):
    """The peer broke the protocol. The connection is closed without an answer."""


class LineTooLongError(WireError):
    """A line is longer than 8 KiB."""


class MalformedLineError(WireError):
    """A line is not the JSON that the protocol asks for."""


# ---- the values of fields --------------------------------------------------------------------------------------------

Read = Callable[[Any], Any]
"""Returns the value, or raises MalformedLineError."""


def integer(lowest: int, highest: int = _LARGEST) -> Read:
    def read(value: Any) -> int:
        if type(value) is not int or not lowest <= value <= highest:
            raise MalformedLineError(f"not an integer from {lowest} to {highest}")
        return value

    return read


def seconds(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value <= _SECONDS_LIMIT:
        raise MalformedLineError("not a number of seconds within a day")
    return float(value)


def boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise MalformedLineError("not a boolean")
    return value


def matching(pattern: str) -> Read:
    compiled = re.compile(pattern)

    def read(value: Any) -> str:
        if type(value) is not str or not compiled.fullmatch(value):
            raise MalformedLineError("a text of another form")
        return value

    return read


def one_line(value: Any) -> str:
    """A text that fits a log line and any JSON reader: no control characters, no halves of a character."""
    if type(value) is not str:
        raise MalformedLineError("not a text")
    return "".join(each if each.isprintable() else " " for each in value[:MESSAGE_LIMIT])


def optional(read: Read) -> Read:
    return lambda value: None if value is None else read(value)


_HEX16, _HEX32, _HEX64 = matching("[0-9a-f]{16}"), matching("[0-9a-f]{32}"), matching("[0-9a-f]{64}")
_NAME = matching("[A-Za-z0-9.-]{0,253}")
_EPOCH = integer(1, 1_000_000)
_SLOT = integer(0, 1_000_000)
_STATE = matching("running|failed|stopped|done")

_FAILURE: Mapping[str, tuple[str, Read]] = {
    "rank": ("rank", integer(0, 100_000_000)),
    "exit_code": ("exitCode", optional(integer(-(2**31), 2**32))),
    "signal": ("signal", optional(integer(1, 128))),
    "message": ("message", one_line),
    "step": ("step", optional(integer(0))),
    "pod": ("pod", _NAME),
    "node": ("node", _NAME),
}


def _failure(value: Any) -> Failure:
    return Failure(**_read_fields(_FAILURE, value))


# ---- the messages ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Form:
    """How a message is written: the name of its type, and for each attribute the name in JSON and the reader."""

    name: str
    make: type[Message]
    fields: Mapping[str, tuple[str, Read]]


_OF_PERMISSION = {
    "permitted": ("permitted", boolean),
    "permitted_seconds": ("permittedSeconds", seconds),
    "in_place_seconds": ("inPlaceSeconds", seconds),
}
_FORMS = (
    _Form("hello", Hello, {"slot": ("slot", _SLOT), "inc": ("inc", _HEX16), "nonce": ("nonce", _HEX32)}),
    _Form("challenge", Challenge, {"nonce": ("nonce", _HEX32), "mac": ("mac", _HEX64)}),
    _Form(
        "proof",
        Proof,
        {
            "mac": ("mac", _HEX64),
            "bound": ("bound", optional(_HEX16)),
            "epoch": ("epoch", _EPOCH),
            "state": ("state", _STATE),
        },
    ),
    _Form("welcome", Welcome, {"barrier": ("barrier", _HEX16), "epoch": ("epoch", _EPOCH), **_OF_PERMISSION}),
    _Form("started", Started, {"epoch": ("epoch", _EPOCH)}),
    _Form("arrived", Arrived, {"epoch": ("epoch", _EPOCH), "age": ("age", seconds)}),
    _Form("joined", Joined, {"epoch": ("epoch", _EPOCH), "age": ("age", seconds)}),
    _Form(
        "steps",
        Steps,
        {
            "epoch": ("epoch", _EPOCH),
            "lowest": ("lowest", integer(0)),
            "highest": ("highest", integer(0)),
            "first": ("first", integer(0)),
            "absolute": ("absolute", boolean),
            "age": ("age", seconds),
            "step_seconds": ("stepSeconds", optional(seconds)),
        },
    ),
    _Form("failed", Failed, {"epoch": ("epoch", _EPOCH), "ended": ("ended", _failure)}),
    _Form("stopped", Stopped, {"epoch": ("epoch", _EPOCH), "stuck": ("stuck", boolean)}),
    _Form("done", Done, {"epoch": ("epoch", _EPOCH)}),
    _Form("leaving", Leaving, {}),
    _Form("beat", Beat, {}),
    _Form("permit", Permit, _OF_PERMISSION),
    _Form("stop", StopEpoch, {"epoch": ("epoch", _EPOCH)}),
    _Form("start", Start, {"epoch": ("epoch", _EPOCH)}),
    _Form("exit", ExitAgent, {}),
    _Form("finished", Finished, {}),
)
_BY_TYPE = {form.name: form for form in _FORMS}
_BY_CLASS = {form.make: form for form in _FORMS}


def encode(message: Message) -> bytes:
    """The line of a message. A message of this package always fits, as its texts are bounded."""
    form = _BY_CLASS[type(message)]
    fields: dict[str, object] = {"type": form.name}
    if isinstance(message, Hello):
        fields["v"] = VERSION
    for attribute, (name, _) in form.fields.items():
        value = getattr(message, attribute)
        fields[name] = failure_fields(value) if isinstance(value, Failure) else value
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def failure_fields(failure: Failure) -> dict[str, object]:
    """What JSON says of a failure, on the wire and in the report."""
    return {name: getattr(failure, attribute) for attribute, (name, _) in _FAILURE.items()}


def decode(line: bytes) -> Message:
    """The message of a line. Fields that are not known are left out. Raises WireError."""
    if len(line) > LINE_LIMIT_BYTES:
        raise LineTooLongError("a line of more than 8 KiB")
    fields = json_object(line)
    if (form := _BY_TYPE.get(str(fields.get("type")))) is None:
        raise MalformedLineError("a type that is not known")
    if form.make is Hello and fields.get("v") != VERSION:
        raise MalformedLineError("a version that is not known")
    made: Message = form.make(**_read_fields(form.fields, fields))
    return made


def json_object(text: bytes) -> dict[str, Any]:
    """Raises MalformedLineError for all that is not one JSON object."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedLineError("not JSON") from error
    if type(value) is not dict:
        raise MalformedLineError("not an object")
    return value


def _read_fields(forms: Mapping[str, tuple[str, Read]], value: Any) -> dict[str, Any]:
    if type(value) is not dict:
        raise MalformedLineError("not an object")
    read = {}
    for attribute, (name, reader) in forms.items():
        if name not in value:
            raise MalformedLineError(f"without {name}")
        read[attribute] = reader(value[name])
    return read


class Lines:
    """Cuts what arrives into lines, and holds at most one unfinished line."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    @property
    def held_bytes(self) -> int:
        return len(self._rest)

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that this completes. Raises LineTooLongError."""
        *lines, rest = (self._rest + data).split(b"\n")
        if len(rest) > LINE_LIMIT_BYTES:
            self._rest = b""
            raise LineTooLongError("a line of more than 8 KiB")
        self._rest = rest
        return lines


# ---- the proofs ------------------------------------------------------------------------------------------------------


def barrier_mac(key: str, client_nonce: str, slot: int) -> str:
    return _mac(key, f"barrier|{client_nonce}|{slot}")


def member_mac(key: str, server_nonce: str, slot: int, inc: str) -> str:
    return _mac(key, f"member|{server_nonce}|{slot}|{inc}")


def same(mac: str, expected: str) -> bool:
    return hmac.compare_digest(mac, expected)


def _mac(key: str, text: str) -> str:
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()
