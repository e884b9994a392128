"""Markdown as a terminal shows it: text at the left edge, and examples that can be copied."""

from typing import ClassVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.syntax import Syntax
from rich.text import Text

_INDENT = " " * 4


class LeftHeading(Heading):
    """A heading that is not centred."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(str(self.text), style="bold")


class IndentedCode(CodeBlock):
    """An example without a background, with each of its lines whole, however narrow the terminal is."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        syntax = Syntax("", self.lexer_name, theme="ansi_dark", background_color="default")
        for line in syntax.highlight(str(self.text).rstrip()).split("\n"):
            yield Text(_INDENT, no_wrap=True, overflow="ignore") + line


class TerminalMarkdown(Markdown):
    """A page of docs/lint."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = Markdown.elements | {
        "heading_open": LeftHeading,
        "fence": IndentedCode,
        "code_block": IndentedCode,
    }

    def __init__(self, text: str) -> None:
        super().__init__(text, justify="default")  # rich fills up the lines that it is to put to the left
