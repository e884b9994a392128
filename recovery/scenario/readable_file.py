"""The parts of a file that can be checked, although something in it may be wrong."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from recovery.scenario.input_problems import Problems
from recovery.scenario.schema import AnyChaos, ScenarioFile, ScenarioJob
from recovery.scenario.strict_input import read_what_is_right


@dataclass(frozen=True)
class ReadableFile:
    """The parts that can be checked."""

    file: ScenarioFile
    jobs: Mapping[str, ScenarioJob]
    """By path."""
    chaos: Mapping[str, AnyChaos]
    """By path."""
    other_chaos: Mapping[str, object]
    """The entries of `chaos` that cannot be read as chaos, by path."""
    all_jobs: bool
    """No job is left out."""
    said: frozenset[str]
    """The fields of the file that are written, even if their values are wrong."""

    @property
    def is_experiment(self) -> bool:
        return self.file.target is not None or "target" in self.said


def read_parts(body: object, wrong: Problems) -> ReadableFile | None:
    """The parts of a body. Adds to `wrong` what does not fit the schema. None: no part can be checked."""
    reading = read_what_is_right(body, ScenarioFile)
    wrong.found += reading.problems
    if not isinstance(body, Mapping):
        return None
    # The rest can be checked even if the name is missing.
    file = reading.value or read_what_is_right({**body, "name": ""}, ScenarioFile).value
    if file is None:
        return None
    jobs, other_jobs = _places("jobs", len(file.jobs), reading.left_out)
    chaos, other_chaos = _places("chaos", len(file.chaos), reading.left_out)
    return ReadableFile(
        file,
        dict(zip(jobs, file.jobs, strict=True)),
        dict(zip(chaos, file.chaos, strict=True)),
        # Under a wrong name for `chaos` the entries can be read, but are not found here.
        {path: body["chaos"][int(path[6:-1])] for path in other_chaos if "chaos" in body},
        not other_jobs and not wrong.is_wrong("jobs", parts=False),
        frozenset(map(str, body)),
    )


def _places(field: str, items: int, left_out: frozenset[str]) -> tuple[list[str], list[str]]:
    """The paths of the items of a list that were read, and of those that were left out."""
    others = [path for path in left_out if re.fullmatch(rf"{field}\[\d+\]", path)]
    paths = [f"{field}[{number}]" for number in range(items + len(others))]
    return [path for path in paths if path not in left_out], sorted(others)
