"""What all objects have in common: metadata, and maps of text."""

from collections.abc import Mapping

from recovery.launch.fields import Field
from recovery.launch.findings import Code, Severity

MISSING_FIELD = Code("missing-field", Severity.ERROR, "a required field is missing")
CODES = (MISSING_FIELD,)


def required(parent: Field, name: str, path: str, fix: str) -> None:
    """Reports that field of the parent if it is missing or empty text. `path`: the field's path in the report, whether
    or not the parent exists."""
    if (parent.value is None or isinstance(parent.value, dict)) and parent.mapping().get(name) in (None, ""):
        parent.finding(MISSING_FIELD, f"{path} is missing: the API server refuses the object", fix)


def name_of(body: Field) -> str:
    """The name of an object. With generateName: the prefix, and as many characters as the API server adds."""
    metadata = body["metadata"]
    if not metadata["generateName"].there:
        required(metadata, "name", "metadata.name", "write metadata.name")
    name, prefix = metadata["name"].text(), metadata["generateName"].text()
    return name or (f"{prefix}xxxxx" if prefix else "")


def namespace_of(body: Field) -> str:
    """The namespace of an object. Empty: the command line decides."""
    return body["metadata"]["namespace"].text()


def strings(field: Field) -> Mapping[str, str]:
    """A map of text to text: labels, annotations, a node selector."""
    return {name: each.text() for name, each in field.fields() if each.is_text()}


def labels_of(metadata: Field) -> Mapping[str, str]:
    return strings(metadata["labels"])


def annotations_of(metadata: Field) -> Mapping[str, str]:
    return strings(metadata["annotations"])
