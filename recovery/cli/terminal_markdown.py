"""Markdown as a terminal shows it: text at the left edge, and examples that can be copied."""

from typing import ClassVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.text import Text
from rich.theme import Theme

_INDENT = " " * 4
THEME = Theme({"markdown.code": "cyan"})
"""Rich's own style has a black background, which stands out on a light terminal."""


class LeftHeading(Heading):
    """A heading that is not centred."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(str(self.text), style="bold")


class IndentedCode(CodeBlock):
    """An example whose lines stay whole, however narrow the terminal is."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in str(self.text).rstrip().splitlines():
            yield Text(f"{_INDENT}{line}", no_wrap=True, overflow="ignore")


class TerminalMarkdown(Markdown):
    """A page of docs/lint."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = Markdown.elements | {
        "heading_open": LeftHeading,
        "fence": IndentedCode,
        "code_block": IndentedCode,
    }

    def __init__(self, text: str) -> None:
        super().__init__(text, justify="default")  # with `left`, rich pads the lines with spaces
