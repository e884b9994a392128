"""Every reason in use has a text, every text is in use, and every use gives the details that its text needs."""

import ast
import string
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import recovery
from recovery.core.model.reason import Explanation, Reason, because, explained
from recovery.core.model.sentence import Sentence
from recovery.core.sentences import TEXTS, render
from recovery.core.sentences.text import Details, Text

ROOT = Path(recovery.__file__).parent


class Call(msgspec.Struct, frozen=True):
    """One call of `because` or `explained` in the product."""

    where: str
    key: Sentence | Reason
    details: frozenset[str]
    spreads: bool
    """The call also unpacks a mapping (`**extent`)."""
    chooses: bool
    """The call chooses between several sentences."""


def calls() -> Iterator[Call]:
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id="because" | "explained")):
                    keys = tuple(keys_of(node.args[0]))
                    for key in keys:
                        yield Call(
                            f"{path.relative_to(ROOT)}:{node.lineno}",
                            key,
                            frozenset(each.arg for each in node.keywords if each.arg is not None),
                            any(each.arg is None for each in node.keywords),
                            len(keys) > 1,
                        )


def keys_of(argument: ast.expr) -> Iterator[Sentence | Reason]:
    """The sentence that the argument names, or both if it chooses between two. A variable names none."""
    for node in ast.walk(argument):
        match node:
            case ast.Attribute(value=ast.Name(id="Sentence"), attr=name):
                yield Sentence[name]
            case ast.Attribute(value=ast.Name(id="Reason"), attr=name):
                yield Reason[name]


class Seen(Details):
    """Details that record which names are asked for. `value`: the value of each detail."""

    def __init__(self, value: str) -> None:
        super().__init__()
        self.value = value
        self.names: set[str] = set()

    def __missing__(self, name: str) -> str:
        self.names.add(name)
        return self.value


def needed(text: Text) -> frozenset[str]:
    """The details that a text can show, for any values."""
    if isinstance(text, str):
        return frozenset(name for _, name, _, _ in string.Formatter().parse(text) if name)
    given, empty = Seen("1"), Seen("")
    text(given)
    text(empty)
    return frozenset(given.names | empty.names)


CALLS = tuple(calls())


def test_calls_that_render_texts_are_found() -> None:
    assert len(CALLS) > 100


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.where} {call.key}")
def test_the_details_are_those_of_the_text(call: Call) -> None:
    wanted = needed(TEXTS[call.key])
    if call.spreads:
        assert call.details <= wanted
    elif call.chooses:
        assert call.details >= wanted
    else:
        assert call.details == wanted


def test_each_sentence_has_a_text_and_each_text_is_told() -> None:
    assert {each for each in Sentence if each not in TEXTS} == set()
    chosen = {call.key for call in CALLS}
    # Chosen by a variable: what a rule says, and an earlier message.
    by_variable: set[Sentence | Reason] = {Sentence.AS_SAID, Sentence.RULE_SAYS, Sentence.RULE_IGNORES}
    by_variable |= {Sentence.ATTEMPTS_BY_BUDGET, Sentence.ATTEMPTS_WHATEVER_BUDGET}
    by_variable |= {Sentence.LAST_NODES, Sentence.TOO_FEW_NODES}
    by_variable |= {Sentence.SINCE_BREAKER_CLOSED, Sentence.SINCE_ENFORCED}
    by_variable |= {Sentence.HOLE_QUARANTINED, Sentence.HOLE_QUARANTINED_POD_STAYS}
    by_variable |= {Reason.NODES_NOT_REPLACED, Reason.GROWTH_UNDONE}
    assert set(TEXTS) - chosen - by_variable == set()


def test_a_detail_that_is_missing_shows_as_its_name() -> None:
    """Wording never makes a decision fail."""
    assert render(because(Reason.JOB_FAILING)) == "Job <job> is failing"


def test_details_may_be_explanations() -> None:
    aside = explained(
        Sentence.STANDING_ASIDE,
        Reason.BACKOFF_LIMIT_ZERO,
        found=because(Reason.MEMBER_LOST, evidence="pod llm-0 failed"),
        decided=because(Reason.BACKOFF_LIMIT_ZERO, job="llm"),
    )
    assert render(aside) == (
        "pod llm-0 failed; standing aside, because Job llm has backoffLimit 0: it fails with its first pod"
    )


def test_braces_in_what_others_say_are_no_placeholders() -> None:
    evidence = 'pod llm-0 failed: {"error": "{oom}"}'
    assert render(because(Reason.MEMBER_LOST, evidence=evidence)) == evidence


def test_an_explanation_is_told_the_same_way_twice() -> None:
    why: Explanation = because(Reason.BUDGET_RESET, charges=3, adopted=0)
    assert render(why) == render(why) == "3 charges no longer count"
