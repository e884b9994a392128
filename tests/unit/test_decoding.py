"""One object that cannot be read: which error that causes, and what is still known about the object."""

import json
from typing import Any

import msgspec
import pytest

from recovery.core.model.facts import GroupKey, UndecodableObject
from recovery.decoding import DEPTH_MAX, at_any_depth, decoded, name_of, shallow
from recovery.ports import JOB_SETS, JOBS, NODES, PODS, TRAIN_JOBS, RefusedError, Resource, UndecodableError

LABEL = "jobset.sigs.k8s.io/jobset-name"
LLM = GroupKey("a", "llm")


class Size(msgspec.Struct):
    size: int


decode_size = msgspec.json.Decoder(Size).decode


def nested(depth: int) -> str:
    return '{"x":' * depth + "1" + "}" * depth


def body(metadata: object, **fields: object) -> bytes:
    return json.dumps({"metadata": metadata, **fields}).encode()


def metadata(**change: object) -> dict[str, object]:
    return {"name": "llm-0", "namespace": "a", "uid": "u", "resourceVersion": "7", "labels": {LABEL: "llm"}} | change


def undecodable(resource: Resource, raw: bytes, error: type[Exception] = ValueError) -> UndecodableObject:
    def decode(_: msgspec.Raw) -> None:
        raise error("no")

    with pytest.raises(UndecodableError) as found:
        decoded(resource, decode, raw)
    return found.value.found


def test_an_object_that_can_be_read_is_read() -> None:
    assert decoded(PODS, decode_size, b'{"size": 3}').size == 3


def test_the_error_names_the_object_and_the_field() -> None:
    with pytest.raises(UndecodableError) as found:
        decoded(PODS, decode_size, body(metadata(), size="big"))
    assert str(found.value) == "Pod a/llm-0 cannot be read: Expected `int`, got `str` - at `$.size`"
    assert isinstance(found.value, RefusedError), "for whoever reads one object, the answer is no use"
    assert found.value.found == UndecodableObject(
        kind="Pod",
        namespace="a",
        name="llm-0",
        uid="u",
        problem="Expected `int`, got `str` - at `$.size`",
        group=LLM,
        resource_version="7",
    )


@pytest.mark.parametrize("error", [ValueError, OverflowError, RecursionError, msgspec.ValidationError])
def test_any_content_that_cannot_be_decoded_raises_one_error(error: type[Exception]) -> None:
    assert undecodable(PODS, body(metadata()), error).problem == "no"


def test_bytes_that_are_no_text_are_its_content() -> None:
    raw = body(metadata(), reason="~").replace(b"~", b"\xff")
    with pytest.raises(UndecodableError, match="Pod a/llm-0 cannot be read: 'utf-8' codec can't decode"):
        decoded(PODS, msgspec.json.Decoder(dict[str, Any]).decode, raw)


@pytest.mark.parametrize("error", [MemoryError, KeyError, AttributeError])
def test_what_is_wrong_with_this_process_or_its_code_is_not(error: type[Exception]) -> None:
    def decode(_: msgspec.Raw) -> None:
        raise error

    with pytest.raises(error):
        decoded(PODS, decode, body(metadata()))


class TestGroup:
    @pytest.mark.parametrize("resource", [PODS, JOBS])
    def test_jobs_and_pods_say_it_in_a_label(self, resource: Resource) -> None:
        assert undecodable(resource, body(metadata())).group == LLM

    @pytest.mark.parametrize("resource", [TRAIN_JOBS, JOB_SETS])
    def test_a_workload_and_its_job_set_have_its_name(self, resource: Resource) -> None:
        assert undecodable(resource, body(metadata(name="llm", labels=3))).group == LLM

    def test_a_node_belongs_to_none(self) -> None:
        assert undecodable(NODES, body({"name": "gpu-1"})).group is None

    @pytest.mark.parametrize(
        "change",
        [
            {"labels": None},
            {"labels": "none"},
            {"labels": {LABEL: 3}},
            {"labels": {LABEL: ""}},
            {"labels": {LABEL: None}},
            {"namespace": None},
            {"namespace": ["a"]},
        ],
    )
    def test_where_nothing_says_so_there_is_none(self, change: dict[str, object]) -> None:
        found = undecodable(PODS, body(metadata(**change)))
        assert found.group is None
        assert found.name == "llm-0"

    def test_a_wrong_label_does_not_hide_the_right_one(self) -> None:
        assert undecodable(PODS, body(metadata(labels={"x": 3, LABEL: "llm"}))).group == LLM


class TestMetadata:
    @pytest.mark.parametrize("raw", [b"1", b"null", b"[]", b"{}", body(1), body([]), body({"name": 1, "uid": {}})])
    def test_an_object_without_any_has_no_name(self, raw: bytes) -> None:
        found = undecodable(PODS, raw)
        assert (found.namespace, found.name, found.uid, found.group) == ("", "", "", None)
        assert found.sentence == "Pod without a name cannot be read: no"

    def test_each_field_is_read_by_itself(self) -> None:
        found = undecodable(PODS, body(metadata(uid=3, resourceVersion=None)))
        assert (found.title, found.uid, found.resource_version) == ("a/llm-0", "", "")

    def test_it_is_read_beside_anything(self) -> None:
        deep = body(metadata(), spec="~").replace(b'"~"', nested(5000).encode())
        assert undecodable(PODS, deep).group == LLM
        assert name_of(msgspec.Raw(deep)) == "llm-0"


class TestDepth:
    """msgspec fails at about 1,000 levels, even in fields that it skips."""

    @pytest.mark.parametrize("depth", [10, 990, 1000, 5000, 200_000])
    def test_what_no_one_reads_may_be_as_deep_as_it_likes(self, depth: int) -> None:
        raw = f'{{"spec": {nested(depth)}, "size": 3, "list": {"[" * depth}{"]" * depth}}}'.encode()
        assert at_any_depth(decode_size, raw).size == 3
        assert decoded(PODS, decode_size, raw).size == 3

    def test_a_field_that_is_read_and_too_deep_is_named(self) -> None:
        raw = body(metadata(), size="~").replace(b'"~"', nested(5000).encode())
        with pytest.raises(UndecodableError, match=r"Expected `int`, got `object` - at `\$\.size`"):
            decoded(PODS, decode_size, raw)

    def test_what_is_kept_is_kept_as_it_is(self) -> None:
        text = json.dumps({"a": ['}{"][', "\\", '\\"', {"b": [[]]}], "c": {}})
        assert shallow(text.encode()).decode() == text

    def test_deeper_values_are_null_and_those_after_them_are_kept(self) -> None:
        cut = shallow(f'{{"a": {nested(DEPTH_MAX)}, "b": [{nested(DEPTH_MAX - 2)}, "]}}"]}}'.encode())
        found = msgspec.json.decode(cut)
        assert found["b"] == [json.loads(nested(DEPTH_MAX - 2)), "]}"]
        for _ in range(DEPTH_MAX - 1):
            found = found["a" if "a" in found else "x"]
        assert found == {"x": None}

    @pytest.mark.parametrize("raw", [b"[" * 5000, b"]" * 5000, b'{"a":' * 5000, b'"' + b"[" * 5000, b"{}}" * 5000])
    def test_what_is_no_json_is_no_json(self, raw: bytes) -> None:
        with pytest.raises(msgspec.DecodeError):
            at_any_depth(decode_size, raw)

    def test_it_takes_time_linear_in_the_length(self) -> None:
        """1.5 MB of brackets alone. etcd stores no more than that."""
        assert shallow(b"[" * 750_000 + b"]" * 750_000) == b"[" * DEPTH_MAX + b"null" + b"]" * DEPTH_MAX
