"""Every block of commands in the documentation says how it is tested."""

import pytest

from tests.documentation.commands import (
    NOT_RUN,
    PAGES,
    REPOSITORY,
    Block,
    blocks_of,
    documented,
    marks_without_a_block,
    prints,
)

PAGE = """
Text.

<!-- run: local -->
```
# a comment
.venv/bin/recovery lint job.yaml   # and another
```

```console
$ kubectl get pods
NAME   READY
```

```console
recovery: the output of a command
```

1. In a list:

   <!-- not run: it needs a browser -->
   ```
   NS=team make pictures
   ```

```yaml
kubectl: no command
```
~~~yaml title="right behind it"
kubectl: neither
~~~

<!-- run: local -->
```
for each in 1 2; do
  seq $each
done
```

The last lines:

<!-- output -->
```
... 1
2
```
"""


def test_blocks_of_commands_are_found_with_their_marks() -> None:
    assert blocks_of(PAGE, "page.md") == [
        Block("page.md", 6, "run: local", "# a comment\n.venv/bin/recovery lint job.yaml   # and another\n"),
        Block("page.md", 11, "", "$ kubectl get pods\nNAME   READY\n"),
        Block("page.md", 23, "not run: it needs a browser", "NS=team make pictures\n"),
        Block("page.md", 35, "run: local", "for each in 1 2; do\n  seq $each\ndone\n", output="... 1\n2\n"),
    ]


def test_an_output_needs_a_block_that_is_run() -> None:
    with pytest.raises(ValueError, match=r"page\.md:6: `output` follows no block"):
        blocks_of("```\nmake\n```\n<!-- output -->\n```\nmade\n```\n", "page.md")


@pytest.mark.parametrize(
    "text",
    [
        "<!-- run: locally -->\n```\nmake\n```\n",
        "<!-- Run: local -->\n```\nmake\n```\n",
        "<!-- run: local -->\n\n```\nmake\n```\n",
        "<!-- not run -->\n```\nmake\n```\n",
        "<!-- output: -->\n```\nmade\n```\n",
    ],
)
def test_a_mark_that_marks_nothing_is_found(text: str) -> None:
    assert marks_without_a_block(PAGE) == []
    assert marks_without_a_block(PAGE + text) == [text.splitlines()[0]]


@pytest.mark.parametrize(
    ("expected", "agrees"),
    [
        ("", True),
        ("a.yaml:3: bad\n    fix: it", True),
        ("a.yaml:3: bad\n...\ncounts: 1", True),
        ("a.yaml:3: … 1", True),
        ("a.yaml:4: bad", False),
        ("counts: 1\n...\na.yaml:3: bad", False),
    ],
)
def test_an_output_agrees_but_for_its_line_breaks_and_what_is_left_out(expected: str, agrees: bool) -> None:
    assert prints(expected, "a.yaml:3: bad fix: it\nb.yaml:1: worse\ncounts: 1\n") is agrees


def test_every_block_of_commands_says_how_it_is_tested() -> None:
    blocks = documented()
    assert len(blocks) > 60
    assert [str(block) for block in blocks if not block.mark] == []


def test_every_mark_belongs_to_a_block() -> None:
    unused = {page.name: marks_without_a_block(page.read_text(encoding="utf-8")) for page in PAGES}
    assert {name: marks for name, marks in unused.items() if marks} == {}


def test_a_test_that_is_said_to_run_a_block_exists() -> None:
    named = {
        word for block in documented() if block.mark.startswith(NOT_RUN) for word in block.mark.split() if "/" in word
    }
    assert len(named) > 2
    assert sorted(word for word in named if word.startswith("tests/") and not (REPOSITORY / word).exists()) == []
