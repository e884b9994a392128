"""What people pipe into `recovery lint` that is no manifest, or only half of one. Each input gets its own message at
the line that needs the fix, and never a traceback."""

import pytest

from recovery.launch.documents import documents
from recovery.launch.lint import explain, lint, subjects
from tests.unit.launch.pages import BASES

TORCH = (BASES / "torch.yaml").read_text()
JOB = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: a}\n"
NO_OBJECT = "write `apiVersion` and `kind` of the object, or remove the document"
TEMPLATE = "error template: this is a template that has not been rendered yet"


def with_line(old: str, new: str) -> str:
    """The clean job with one line changed."""
    assert TORCH.count(f"{old}\n") >= 1
    return TORCH.replace(f"{old}\n", f"{new}\n", 1)


def told(text: str) -> list[str]:
    """`line severity code: message` for each finding. Also explains everything that can be explained."""
    read = documents(text)
    for subject in subjects(read):
        if subject.group is not None:
            explain(subject.group)
    return [
        f"{read[each.place.document].line_of(each.place.path)} {each.code.severity} {each.code.name}: {each.message}"
        for each in lint(read)
    ]


@pytest.mark.parametrize(
    "text",
    ["", "\n\n", "# a comment\n", "---\n---\n", "null\n---\n~\n", "apiVersion: v1\nkind: List\n", "\ufeff"],
    ids=repr,
)
def test_nothing_is_nothing(text: str) -> None:
    assert told(text) == []


@pytest.mark.parametrize(
    "text",
    [
        f"\ufeff{TORCH}",
        TORCH.replace("\n", "\r\n"),
        TORCH.replace("\n", "\r"),
        f"{TORCH}...\n",
        f"\n\n{TORCH}\n\n",
    ],
    ids=["byte order mark", "Windows", "old Mac", "document ends", "empty lines"],
)
def test_how_the_lines_end_does_not_matter(text: str) -> None:
    assert (len(documents(text)), told(text)) == (2, [])


@pytest.mark.parametrize(
    ("text", "first"),
    [
        (with_line("    numNodes: 16", "    numNodes: {{ .Values.nodes }}"), f"14 {TEMPLATE}"),
        (with_line("  name: llama", '  {{- include "labels" . | nindent 2 }}'), f"5 {TEMPLATE}"),
        (f"{{{{- if .Values.train }}}}\n{TORCH}{{{{- end }}}}\n", f"1 {TEMPLATE}"),
        (with_line("    numNodes: 16", "    numNodes: {% if big %}16{% endif %}"), f"14 {TEMPLATE}"),
        (
            with_line("  name: llama", '  name: "{{ .Release.Name }}-train"'),
            "5 error name-not-dns: '{{ .Release.Name }}-train' is a placeholder that nothing has filled in: the API "
            "server refuses such a name",
        ),
        (
            with_line("  name: llama", "  name: $JOB"),
            "5 error name-not-dns: '$JOB' is a placeholder that nothing has filled in: the API server refuses such a "
            "name",
        ),
        (
            with_line("    numNodes: 16", "    numNodes: ${NODES}"),
            '14 error wrong-type: spec.trainer.numNodes is the string "${NODES}" where a whole number is wanted',
        ),
    ],
    ids=["helm value", "helm include", "helm if", "jinja", "helm in quotes", "shell", "envsubst"],
)
def test_a_template_is_told_that_it_is_one(text: str, first: str) -> None:
    assert told(text)[0] == first


def test_a_placeholder_where_a_number_belongs_is_to_be_filled_in() -> None:
    (found,) = lint(documents(with_line("    numNodes: 16", "    numNodes: ${NODES}")))

    assert found.fix == "fill the placeholder in first, with helm template or envsubst"


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("  name: llama", '  name: "{{ .Release.Name }}"', "name-not-dns"),
        ("    numNodes: 16", '    numNodes: "{{ .Values.nodes }}"', "wrong-type"),
        ("        memory: 900Gi", '        memory: "{{ .Values.memory }}"', "bad-quantity"),
        ("    name: torch-prepared", '    name: "{{ .Values.runtime }}"', "unknown-runtime"),
    ],
)
def test_what_helm_is_to_fill_in_is_to_be_rendered_first(old: str, new: str, code: str) -> None:
    first = next(each for each in lint(documents(with_line(old, new))) if each.code.name == code)

    assert first.fix == "render it first: helm template . | recovery lint -"


def test_braces_in_a_command_are_no_template() -> None:
    """A script may contain them, as in Python's f-strings or Docker's Go templates."""
    script = 'command: [bash, -c, "echo {{ x }} ${HOME} && torchrun --log-dir=/checkpoints/logs train.py --resume"]'
    assert (
        told(with_line("    command: [torchrun, --log-dir=/checkpoints/logs, --tee=3, train.py]", f"    {script}"))
        == []
    )


@pytest.mark.parametrize(
    ("text", "all_of_it"),
    [
        (
            "resources:\n- train.yaml\n",
            ["1 error not-an-object: the document has no apiVersion, so its kind is unknown"],
        ),
        (
            "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [train.yaml]\n",
            ["2 note unknown-kind: a Kustomization of kustomize.config.k8s.io/v1beta1 is not judged here"],
        ),
        (
            f"{JOB}spec:\n  trainer:\n    numNodes: 3\n",
            ["4 error missing-field: spec.runtimeRef is missing: the API server refuses the object"],
        ),
        (
            "apiVersion: v1\nkind: List\nitems: train.yaml\n",
            ["3 error not-an-object: items of a List is not a list"],
        ),
        (
            "apiVersion: v1\nkind: List\nitems:\n- null\n- 3\n",
            [
                "4 error not-an-object: the document is a single value, not an object",
                "5 error not-an-object: the document is a single value, not an object",
            ],
        ),
        (
            '{"apiVersion": "v1", "kind": "Pod"}\n{"apiVersion": "v1", "kind": "Pod"}\n',
            [
                "1 note unknown-kind: a Pod of v1 is not judged here",
                "2 error not-yaml: something follows the first JSON object",
            ],
        ),
        (
            JOB.replace("v1alpha1", "v1beta1"),
            [
                "1 error wrong-api-version: there is no TrainJob of trainer.kubeflow.org/v1beta1 that is known here, "
                "so nothing of it is judged"
            ],
        ),
        (
            "<html><body>404</body></html>\n",
            ["1 error not-an-object: the document is a single value, not an object"],
        ),
        (
            "#!/bin/sh\nkubectl apply -f train.yaml\n",
            ["2 error not-an-object: the document is a single value, not an object"],
        ),
        (
            "\x7fELF\x02\x01",
            ["1 error not-yaml: the character U+007F may not stand in YAML"],
        ),
        (
            "apiVersion: [v1]\nkind: {a: b}\n",
            ["1 error not-an-object: the document has no apiVersion, so its kind is unknown"],
        ),
        (
            f"{JOB}spec: {{runtimeRef: {{name: on}}}}\n",
            ["4 error wrong-type: spec.runtimeRef.name is the boolean true where a string is wanted"],
        ),
        (
            f"{JOB.replace('name: a', 'name: a, annotations: {recovery.trainjob.dev/checkpoint-interval: 5}')}"
            "spec: {runtimeRef: {name: torch}}\n",
            [
                "3 error wrong-type: metadata.annotations.recovery.trainjob.dev/checkpoint-interval is the number 5 "
                "where a string is wanted",
                "4 note unknown-runtime: the ClusterTrainingRuntime torch is not known here, so what its settings "
                "decide is not judged",
            ],
        ),
        (
            with_line("    name: torch-prepared", "    name: torch-prepared\n    kind: TrainingRuntime"),
            [
                "8 note unknown-runtime: the TrainingRuntime torch-prepared is not known here, so what its settings "
                "decide is not judged"
            ],
        ),
        (
            with_line("  name: llama", "  name: Llama"),
            [
                "5 error name-not-dns: 'Llama' is not a host name, and the pods are named after it: the API server "
                "refuses it"
            ],
        ),
        (
            with_line("  name: llama", "  name: lläma-😀"),
            [
                "5 error name-not-dns: 'lläma-😀' is not a host name, and the pods are named after it: the API server "
                "refuses it"
            ],
        ),
        (
            with_line("  name: llama", "\tname: llama"),
            ["5 error not-yaml: a tab stands where YAML wants spaces"],
        ),
        (
            with_line("    numNodes: 16", "    numNodes: ²"),
            ['14 error wrong-type: spec.trainer.numNodes is the string "\\u00b2" where a whole number is wanted'],
        ),
        (
            with_line("    numNodes: 16", "    numNodes: 16\n    numNodes: 8"),
            [
                "15 error duplicate-key: spec.trainer.numNodes stands twice, first in line 14: kubectl takes the last "
                "one and says nothing"
            ],
        ),
    ],
    ids=lambda each: each[:25] if isinstance(each, str) else "",
)
def test_what_is_no_manifest_or_half_of_one_is_told_and_why(text: str, all_of_it: list[str]) -> None:
    assert told(text) == all_of_it


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{after}: &{after} [{','.join([f'*{before}'] * 9)}]\n"
    for before, after in zip("abcdefghi", "bcdefghij", strict=True)
)


@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        "a: " + "[" * 10_000 + "]" * 10_000,
        "".join(f"{' ' * depth}a:\n" for depth in range(1000)),
        '{"a":' * 10_000 + "1" + "}" * 10_000,
        "a: " + "{a: " * 10_000,
        "- " * 10_000,
        f"{TORCH}# {'x' * 20_000_000}",
    ],
    ids=["aliases", "flow lists", "blocks", "JSON", "unclosed", "lists in one line", "20 MB"],
)
def test_what_would_fill_the_memory_or_the_stack_is_told_to_be_too_large(text: str) -> None:
    assert [line.split(":")[0].split()[1:] for line in told(text)] == [["error", "too-large"]]


@pytest.mark.parametrize(
    "text", ["---\n" * 20_000, f"a: {'x' * 1_000_000}", f"{'x' * 1000}: 1", "a: '" + "\n" * 50_000]
)
def test_what_is_only_long_is_read_or_told(text: str) -> None:
    assert len(told(text)) <= 1
