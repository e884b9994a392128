"""Sentences are written for people. What a program needs to know of an earlier decision is a field of the ledger."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import recovery

ROOT = Path(recovery.__file__).parent
SENTENCES = frozenset({"message", "whole_message", "would_message", "storm_what", "releasing", "then", "note"})
READS = frozenset(
    {"startswith", "endswith", "partition", "rpartition", "removeprefix", "removesuffix", "split", "find", "index"}
)
COMPARES = (ast.Eq, ast.NotEq, ast.In, ast.NotIn)
OTHERS = {
    # Messages of containers, conditions and exceptions, which others write.
    "core/diagnosis/",
    "decoding.py",
    "kube/",
    "sim/",
    "launch/",
    "admission/",
    "agent/",
}
"""Files and folders whose `message` is not ours."""


def reads(tree: ast.AST) -> Iterator[int]:
    """The lines that read a sentence."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr=field), attr=method)) if method in READS:
                if field in SENTENCES:
                    yield node.lineno
            case ast.Compare(left=left, ops=ops, comparators=others) if any(isinstance(op, COMPARES) for op in ops):
                if any(isinstance(each, ast.Attribute) and each.attr in SENTENCES for each in (left, *others)):
                    yield node.lineno


@pytest.mark.parametrize(
    "code",
    [
        "open_.message.startswith('pod')",
        "attempt.whole_message.partition('; ')[0]",
        "'standing aside' in incident.message",
        "attempt.message == message",
        "incident.would_message != ''",
    ],
)
def test_reading_a_sentence_is_found(code: str) -> None:
    assert list(reads(ast.parse(code))) == [1]


def test_no_one_reads_a_sentence() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted(ROOT.rglob("*.py"))
        if not any(str(path.relative_to(ROOT)).startswith(other) for other in OTHERS)
        for line in reads(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == []
