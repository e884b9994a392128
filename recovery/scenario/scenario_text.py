"""The text of a scenario file: what it says, and on which line."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import yaml

from recovery.scenario.strict_input import BadInputError


class BadScenarioError(BadInputError):
    """The file is refused. `lines`: the line of each problem, from 1."""

    def __init__(self, *problems: tuple[int, str]) -> None:
        super().__init__(*(problem for _, problem in problems))
        self.lines = tuple(line for line, _ in problems)


@dataclass(frozen=True)
class ScenarioText:
    body: object
    lines: Mapping[str, int]
    """The line of each field, by path."""
    repeated: tuple[str, ...]
    """A problem for each field that is written twice. YAML keeps only the last one, so the other would be lost."""

    def refusal(self, problems: list[str]) -> BadScenarioError:
        """An error with all problems, in the order of the file."""
        found = [(self._line(problem.partition(": ")[0]), problem) for problem in dict.fromkeys(problems)]
        return BadScenarioError(*sorted(found, key=lambda each: each[0]))

    def _line(self, path: str) -> int:
        """The line of a field, or of the nearest part around it if the field is missing."""
        while path and path not in self.lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.lines.get(path, 1)


def load(text: str) -> ScenarioText:
    """Raises BadScenarioError if the text is not YAML."""
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return ScenarioText(None, {}, ())
        lines: dict[str, int] = {}
        repeated = tuple(_walk(node, "", lines))
        return ScenarioText(loader.construct_document(node), lines, repeated)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        why = ", ".join(part for part in (error.context, error.problem) if part)
        raise BadScenarioError((mark.line + 1 if mark is not None else 1, f"the file is not YAML: {why}")) from None
    except (yaml.YAMLError, ValueError) as error:  # For example an invalid date such as 2026-13-01.
        raise BadScenarioError((1, f"the file is not YAML: {' '.join(str(error).split())}")) from None
    except RecursionError:
        raise BadScenarioError((1, "the file is nested too deeply, or an alias in it refers to itself")) from None


def _walk(node: yaml.Node, path: str, lines: dict[str, int]) -> Iterator[str]:
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            yield from _walk(item, f"{path}[{number}]", lines)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = f"{path}.{key.value}" if path else str(key.value)
            line = key.start_mark.line + 1
            if inner in lines:
                yield f"{inner}: stands there twice, also on line {lines[inner]}; leave one out"
            lines[inner] = line
            yield from _walk(value, inner, lines)
