"""Lines between members and the barrier."""

import contextlib
import json
import random

import pytest

from recovery.agent._trainjob_recovery import messages as msg
from recovery.agent._trainjob_recovery.wire import (
    LINE_LIMIT_BYTES,
    Lines,
    LineTooLongError,
    MalformedLineError,
    WireError,
    barrier_mac,
    decode,
    encode,
    member_mac,
    same,
)

HEX16, HEX32, HEX64 = "a" * 16, "b" * 32, "c" * 64
FAILURE = msg.Failure(40, None, 9, "RuntimeError: “boom”", 12, "pod-0", "node.example")
ALL: list[msg.Message] = [
    msg.Hello(3, HEX16, HEX32),
    msg.Challenge(HEX32, HEX64),
    msg.Proof(HEX64, None, 1, "running"),
    msg.Proof(HEX64, HEX16, 7, "stopped"),
    msg.Welcome(HEX16, 2, True, 599.5, 60.0),
    msg.Started(1),
    msg.Failed(1, FAILURE),
    msg.Arrived(1, 2.5),
    msg.Joined(2, 0.0),
    msg.Steps(2, 10, 12, 8, True, 0.25, 0.5),
    msg.Steps(2, 10, 12, 8, False, 86_400.0, None),
    msg.Stopped(1, stuck=True),
    msg.Done(3),
    msg.Leaving(),
    msg.Beat(),
    msg.Permit(False, 0.0, 60.0),
    msg.StopEpoch(1),
    msg.Start(2),
    msg.ExitAgent(),
    msg.Finished(),
]


@pytest.mark.parametrize("message", ALL, ids=lambda each: type(each).__name__)
def test_a_message_is_read_as_it_was_written(message: msg.Message) -> None:
    line = encode(message)
    assert line.endswith(b"\n")
    assert decode(line[:-1]) == message


def test_lines_have_the_agreed_names() -> None:
    assert json.loads(encode(ALL[0])) == {"v": 1, "type": "hello", "slot": 3, "inc": HEX16, "nonce": HEX32}
    assert json.loads(encode(ALL[4])) == {
        "type": "welcome",
        "barrier": HEX16,
        "epoch": 2,
        "permitted": True,
        "permittedSeconds": 599.5,
        "inPlaceSeconds": 60.0,
    }
    assert json.loads(encode(ALL[6]))["ended"] == {
        "rank": 40,
        "exitCode": None,
        "signal": 9,
        "message": "RuntimeError: “boom”",
        "step": 12,
        "pod": "pod-0",
        "node": "node.example",
    }


def test_the_longest_message_fits_a_line() -> None:
    longest = msg.Failure(10**8, -(2**31), 128, "\U0001f600" * 300, 2**53, "p" * 253, "n" * 253)
    assert len(encode(msg.Failed(10**6, longest))) < LINE_LIMIT_BYTES


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"\xff",
        b'{"type":"other"}',
        b'{"type":["stop"]}',
        b'{"type":"stop"}',
        b'{"type":"stop","epoch":"1"}',
        b'{"type":"stop","epoch":true}',
        b'{"type":"stop","epoch":0}',
        b'{"type":"stop","epoch":1.0}',
        b'{"type":"stop","epoch":99999999999999999999999}',
        b'{"type":"stopped","epoch":1,"stuck":0}',
        b'{"type":"permit","permitted":true,"permittedSeconds":NaN,"inPlaceSeconds":60}',
        b'{"type":"permit","permitted":true,"permittedSeconds":Infinity,"inPlaceSeconds":60}',
        b'{"type":"permit","permitted":true,"permittedSeconds":-1,"inPlaceSeconds":60}',
        b'{"type":"failed","epoch":1,"ended":[]}',
        b'{"type":"arrived","epoch":1}',
        b'{"type":"arrived","epoch":1,"age":-1}',
        b'{"type":"joined","epoch":1,"age":NaN}',
        b'{"type":"steps","epoch":1,"lowest":1,"highest":2,"first":0,"absolute":true,"age":0}',
        b'{"type":"steps","epoch":1,"lowest":-1,"highest":2,"first":0,"absolute":true,"age":0,"stepSeconds":null}',
        b'{"type":"hello","v":2,"slot":0,"inc":"aaaaaaaaaaaaaaaa","nonce":"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"}',
        b'{"type":"stop","epoch":' + b"1" * 5000 + b"}",
        b"[" * 8000,
    ],
)
def test_another_line_is_malformed(line: bytes) -> None:
    with pytest.raises(MalformedLineError):
        decode(line)


def test_a_failures_message_becomes_one_line_of_300_characters() -> None:
    line = encode(msg.Failed(1, FAILURE)).replace(b'"RuntimeError', b'"\\ud800\\u001b[31m\\n' + b"x" * 400 + b" ")
    message = decode(line[:-1])
    assert isinstance(message, msg.Failed)
    assert message.ended.message == "  [31m " + "x" * 293


def test_names_of_a_pod_have_no_other_characters() -> None:
    with pytest.raises(MalformedLineError):
        decode(encode(msg.Failed(1, FAILURE)).replace(b"pod-0", b"pod 0"))


def test_lines_are_cut_wherever_the_pieces_end() -> None:
    whole = b"".join(encode(message) for message in ALL)
    draw = random.Random(7)
    for _ in range(50):
        lines, found, at = Lines(), [], 0
        while at < len(whole):
            step = draw.randint(1, 400)
            found += lines.feed(whole[at : at + step])
            at += step
        assert [decode(line) for line in found] == ALL
        assert lines.held_bytes == 0


def test_a_line_of_8_kib_is_the_longest() -> None:
    lines = Lines()
    assert lines.feed(b"x" * LINE_LIMIT_BYTES) == []
    with pytest.raises(LineTooLongError):
        lines.feed(b"x")
    assert lines.held_bytes == 0
    with pytest.raises(LineTooLongError):
        decode(b" " * (LINE_LIMIT_BYTES + 1))


def test_drawn_bytes_raise_nothing_but_a_wire_error() -> None:
    draw = random.Random(38)
    for _ in range(5000):
        line = bytearray(encode(draw.choice(ALL))[:-1])
        for _ in range(draw.randint(1, 4)):
            at = draw.randrange(len(line))
            line[at : at + draw.randint(0, 3)] = draw.randbytes(draw.randint(0, 3))
            line = line or bytearray(b"x")
        with contextlib.suppress(WireError):
            encode(decode(bytes(line)))


def test_a_proof_is_of_one_key_slot_and_side() -> None:
    proofs = {
        barrier_mac("key", HEX32, 1),
        barrier_mac("other", HEX32, 1),
        barrier_mac("key", HEX32, 2),
        member_mac("key", HEX32, 1, HEX16),
        member_mac("key", HEX32, 1, "d" * 16),
    }
    assert len(proofs) == 5
    assert same(barrier_mac("key", HEX32, 1), barrier_mac("key", HEX32, 1))
