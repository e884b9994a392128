"""Text from users: it is read as kubectl would read it, and each field has its line."""

from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.launch.documents import CHARACTERS_MAX, Document, document_of, documents
from recovery.launch.places import Path, Place
from tests.unit.launch.pages import BASES

HEAD = "apiVersion: v1\nkind: Probe\n"
MANIFEST = (BASES / "torch.yaml").read_text()


def read(text: str) -> Document:
    """The only document of that text."""
    (document,) = documents(dedent(text))
    return document


def told(text: str) -> list[tuple[str, int, str]]:
    """Code, line and message of everything that is wrong with the text."""
    return [
        (problem.code.name, document.line_of(problem.place.path), problem.message)
        for document in documents(text)
        for problem in document.problems
    ]


# Each case was run through sigs.k8s.io/yaml 1.6.0, the parser of kubectl 1.36.
@pytest.mark.parametrize(
    ("written", "value"),
    [
        *((word, True) for word in ("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON")),
        *((word, False) for word in ("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF")),
        *((word, None) for word in ("", "~", "null", "Null", "NULL")),
        ("tRue", "tRue"),
        ("017", 15),
        ("0o17", 15),
        ("08", 8),
        ("0x1F", 31),
        ("0b11", 3),
        ("-0b11", -3),
        ("1_000", 1000),
        ("+5", 5),
        ("1e3", 1000),
        ("8.0", 8),
        ("8.", 8),
        (".5", 0.5),
        ("-.5", -0.5),
        ("1e-7", 1e-7),
        ("1e22", 1e22),
        ("1e400", "1e400"),
        ("1:30", "1:30"),
        ("2026-01-01", "2026-01-01"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("1500m", "1500m"),
        ("64Gi", "64Gi"),
        ("'8'", "8"),
        ('"yes"', "yes"),
        ("1e21", 1e21),
        ("18446744073709551615", 2**64 - 1),
        ("-9223372036854775808", -(2**63)),
        ("0xffffffffffffffff", 2**64 - 1),
        ("0x10000000000000000", "0x10000000000000000"),
        ("1" * 500, "1" * 500),
        ("!!str 8", "8"),
        ("!!int 8", 8),
        ("!!float 8", 8),
        ("!!bool on", True),
        ("!!null ~", None),
        ('!!binary "aG\\n k="', "hi"),
        ("!template x", "x"),
    ],
)
def test_a_value_means_what_kubectl_takes_it_for(written: str, value: object) -> None:
    body = read(f"{HEAD}it: {written}\n").body

    assert (body["it"], type(body["it"])) == (value, type(value))


@pytest.mark.parametrize(
    ("written", "key"), [("8", "8"), ("yes", "true"), ("1e3", "1000"), ("1.5", "1.5"), ("'yes'", "yes")]
)
def test_every_key_is_text(written: str, key: str) -> None:
    assert key in read(f"{HEAD}{written}: x\n").body


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: 'x\nb: 1\n", 1, "a quote that opens here is never closed"),
        ('a: 1\nb: "x\n', 2, "a quote that opens here is never closed"),
        ("a:\n\t- b\n", 2, "a tab stands where YAML wants spaces"),
        ("a: @b\n", 1, "'@' cannot begin a value"),
        ("a: b: c\n", 1, "a second colon stands in this line, or the line is indented too far"),
        ("a: 1\n  b: 2\n", 2, "a second colon stands in this line, or the line is indented too far"),
        ("a:\n - b\n c: d\n", 3, "the indentation does not fit the lines above"),
        ("a: 1\nb\nc: 2\n", 2, "this line has no colon"),
        ("a: 1\nb: [1, 2\nc: 3\n", 2, "a [ or { that opens here is never closed"),
        ('a: "\\q"\n', 1, "a backslash in double quotes"),
        ("? [a]\n: b\n", 1, "a key is itself a list or a mapping"),
        ("~: b\n", 1, "a key is empty, and a key has to be text"),
        ("a: *here\n", 1, "*here refers to no anchor above it"),
        ("a: &here [*here]\n", 1, "*here stands within its own anchor"),
        ("a: 1\n<<: 2\n", 2, "<< wants a mapping, or a list of them"),
        ("a: .nan\n", 1, "'.nan' is no number that JSON can hold"),
        ("a: !!int x\n", 1, "'x' is not of the tag !!int"),
        ("a: !!int on\n", 1, "'on' is not of the tag !!int"),
        ("a: !!float x\n", 1, "'x' is not of the tag !!float"),
        ("a: !!bool 1\n", 1, "'1' is not of the tag !!bool"),
        ("a: !!binary x\n", 1, "'x' is not base64, as its tag !!binary has it"),
        ("a: 1\nb: \x00\n", 2, "the character U+0000 may not stand in YAML"),
        (
            "  apiVersion: v1\n  kind: Probe\na: 1\n",
            3,
            "the line is indented less than the first one, so that it ends the document: kubectl drops it and what "
            "follows",
        ),
    ],
)
def test_what_is_no_yaml_is_told_in_our_words_with_its_line(text: str, line: int, message: str) -> None:
    assert told(text) == [("not-yaml", line, message)]


@pytest.mark.parametrize(("text", "line"), [("a: {{ .Values.name }}\n", 1), ("a: 1\n{{- if .Values.b }}\nb: 2\n", 2)])
def test_nor_is_a_template(text: str, line: int) -> None:
    assert told(text) == [("template", line, "this is a template that has not been rendered yet")]


def test_what_stands_before_a_mistake_is_read() -> None:
    first, second = documents(f"{HEAD}---\na: 'x\n", file="job.yaml", first=3)

    assert (first.number, first.kind, first.problems) == (3, "Probe", ())
    assert (second.number, second.body, [each.place for each in second.problems]) == (4, {}, [Place(4)])
    assert (first.file, second.file) == ("job.yaml", "job.yaml")


def test_empty_documents_are_none() -> None:
    assert [each.number for each in documents(f"---\n# nothing\n---\n{HEAD}---\n\n---\n{HEAD}")] == [0, 1]
    assert documents("") == ()


def test_the_items_of_a_list_are_documents_with_lines_of_their_own() -> None:
    first, second = documents(
        dedent("""\
        apiVersion: v1
        kind: List
        items:
        - apiVersion: v1
          kind: One
        - apiVersion: v1
          kind: Two
          spec:
            replicas: 1
            replicas: 2
        """)
    )

    assert [(each.number, each.kind, each.line_of(())) for each in (first, second)] == [(0, "One", 4), (1, "Two", 6)]
    assert (second.line_of(("spec",)), second.line_of(("spec", "replicas"))) == (8, 10)
    assert [(each.code.name, each.place) for each in second.problems] == [
        ("duplicate-key", Place(1, ("spec", "replicas")))
    ]
    assert first.problems == ()


def test_a_key_that_stands_twice_is_told_and_the_last_one_counts() -> None:
    text = f"{HEAD}spec:\n  a: 1\n  b: 2\n  a: 3\n"

    assert told(text) == [
        ("duplicate-key", 6, "spec.a stands twice, first in line 4: kubectl takes the last one and says nothing")
    ]
    assert read(text).body["spec"] == {"a": 3, "b": 2}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a\n- b\n", "the document is a list, not an object"),
        ("just words\n", "the document is a single value, not an object"),
        ("kind: Probe\n", "the document has no apiVersion, so its kind is unknown"),
        ("apiVersion: v1\nkind: 8\n", "the document has no kind, so its kind is unknown"),
    ],
)
def test_what_is_no_object_is_told(text: str, message: str) -> None:
    assert told(text) == [("not-an-object", 1, message)]
    assert read(text).body == {}


def test_every_field_has_the_line_of_its_key_or_of_its_item() -> None:
    document = read("""\
        apiVersion: v1
        kind: Probe
        spec:
          template:
            image: x
          env:
          - name: A
            value: b
          - {name: C}
        """)

    lines = {
        (): 1,
        ("spec",): 3,
        ("spec", "template", "image"): 5,
        ("spec", "env", 0): 7,
        ("spec", "env", 0, "value"): 8,
        ("spec", "env", 1, "name"): 9,
    }
    assert {path: document.line_of(path) for path in lines} == lines


def test_a_field_that_is_not_there_has_the_line_of_its_nearest_parent() -> None:
    assert read(f"{HEAD}spec:\n  a: 1\n").line_of(("spec", "b", 0, "c")) == 3


def test_what_an_alias_brings_has_the_line_of_the_alias() -> None:
    document = read("""\
        apiVersion: v1
        kind: Probe
        first: &here
          a: {b: 1}
        second: *here
        third:
        - *here
        fourth:
          <<: *here
          c: 2
        """)

    lines: dict[Path, int] = {
        ("first", "a", "b"): 4,
        ("second", "a", "b"): 5,
        ("third", 0, "a"): 7,
        ("fourth", "a", "b"): 9,
    }
    assert {path: document.line_of(path) for path in lines} == lines
    assert document.body["fourth"] == {"a": {"b": 1}, "c": 2}


def test_a_merge_is_laid_over_what_stands_before_it_as_kubectl_does_it() -> None:
    document = read("""\
        apiVersion: v1
        kind: Probe
        low: &low {a: 1, b: 1}
        high: &high {a: 2}
        over: {a: 3, <<: *low}
        under: {<<: *low, a: 3}
        several: {<<: [*high, *low]}
        quoted: {"<<": *low}
        """)

    assert document.body["over"] == {"a": 1, "b": 1}
    assert document.body["under"] == {"a": 3, "b": 1}
    assert document.body["several"] == {"a": 2, "b": 1}
    assert document.body["quoted"] == {"<<": {"a": 1, "b": 1}}
    assert document.problems == ()


def test_an_alias_stands_for_what_its_anchor_last_had() -> None:
    body = read(f"{HEAD}spec:\n  a: &x 1\n  b: &x 2\n  *x : 3\n  c: *x\n").body

    assert body["spec"] == {"a": 1, "b": 2, "2": 3, "c": 2}


def test_anchors_end_with_their_document() -> None:
    assert told(f"{HEAD}a: &x 1\n---\n{HEAD}a: *x\n") == [("not-yaml", 7, "*x refers to no anchor above it")]


def test_json_is_read_as_it_is_written() -> None:
    document = read('{\n\t"apiVersion": "v1",\n\t"kind":"Probe",\n\t"a": ["\\ud83d\\ude00", 1e3, "yes"]\n}')

    assert document.body["a"] == ["😀", 1000, "yes"]
    assert document.line_of(("a", 1)) == 4


def test_aliases_that_unfold_without_end_are_not_unfolded() -> None:
    levels = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 30))

    assert told(f"a0: &a0 [x]\n{levels}") == [("too-large", 7, "it holds more than 500,000 values")]


@pytest.mark.parametrize("opening", ["[", "- ", "{a: "])
def test_what_is_nested_without_end_is_not_followed(opening: str) -> None:
    assert told(opening * 10_000) == [("too-large", 1, "it is nested deeper than 100 levels")]


def test_a_text_that_is_too_long_is_not_read() -> None:
    assert told("a" * (CHARACTERS_MAX + 1)) == [("too-large", 1, "the text is longer than 20,000,000 characters")]


def test_an_object_from_no_file_has_no_lines() -> None:
    document = document_of({"apiVersion": "v1", "kind": "Probe"}, number=2)

    assert (document.number, document.kind, document.line_of(("spec",))) == (2, "Probe", 0)


@given(st.text())
def test_no_text_raises(text: str) -> None:
    for document in documents(text):
        assert document.body or document.problems
        assert all(problem.message and problem.fix for problem in document.problems)


@given(
    st.lists(st.sampled_from([*"&*!|>%@`'\"[]{},:-?#\n\t <a8~.", "<<: ", "&a ", "*a ", "- ", "? ", "!!int ", "---\n"]))
)
def test_no_yaml_document_raises(pieces: list[str]) -> None:
    for document in documents("".join(pieces)):
        assert document.body or document.problems


@given(st.integers(0, len(MANIFEST)), st.integers(0, 40), st.text(max_size=5))
def test_a_manifest_with_a_piece_changed_is_read_or_told(start: int, length: int, instead: str) -> None:
    for document in documents(MANIFEST[:start] + instead + MANIFEST[start + length :]):
        assert document.body or document.problems
        for problem in document.problems:
            assert 1 <= document.line_of(problem.place.path) <= MANIFEST.count("\n") + 7
