"""Every block of commands in the documentation says how it is tested."""

from tests.documentation.commands import NOT_RUN, REPOSITORY, Block, blocks_of, documented

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
"""


def test_blocks_of_commands_are_found_with_their_marks() -> None:
    assert list(blocks_of(PAGE, "page.md")) == [
        Block("page.md", 6, "run: local", "# a comment\n.venv/bin/recovery lint job.yaml   # and another\n"),
        Block("page.md", 11, "", "$ kubectl get pods\nNAME   READY\n"),
        Block("page.md", 23, "not run: it needs a browser", "NS=team make pictures\n"),
    ]


def test_every_block_of_commands_says_how_it_is_tested() -> None:
    blocks = documented()
    assert len(blocks) > 60
    assert [str(block) for block in blocks if not block.mark] == []


def test_a_test_that_is_said_to_run_a_block_exists() -> None:
    named = {
        word for block in documented() if block.mark.startswith(NOT_RUN) for word in block.mark.split() if "/" in word
    }
    assert len(named) > 2
    assert sorted(word for word in named if word.startswith("tests/") and not (REPOSITORY / word).exists()) == []
