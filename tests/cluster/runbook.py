"""Follows a runbook to the letter: runs every command of the page in a shell, as a person who fills in only names."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.controlplane.build import Toolbox
from tests.cluster.controlplane.processes import die_with_parent
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import REPOSITORY, Job

RUNBOOKS = REPOSITORY / "docs" / "runbooks"
_BLOCK = re.compile(r"^```\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"`((?:kubectl|recovery) [^`\n]+)`")
_EXAMPLE = re.compile(r"^[A-Z]+=\S+(?: [A-Z]+=\S+)*\n", re.MULTILINE)
"""A line that sets variables to an example."""


@dataclass(frozen=True)
class Shell:
    """What an on-call engineer has: a checkout, kubectl and `recovery`, with the rights of an administrator."""

    control_plane: ControlPlane
    toolbox: Toolbox

    async def run(self, script: str, names: Mapping[str, str] | None = None) -> str:
        """Returns what the script prints on stdout and stderr. Raises AssertionError if one of its commands fails."""
        programs = (self.toolbox.binary("kubectl").parent, Path(sys.executable).parent)
        path = ":".join([*map(str, programs), os.environ["PATH"]])
        process = await asyncio.create_subprocess_exec(
            *("bash", "-euo", "pipefail", "-c", script),
            cwd=REPOSITORY,
            env={**os.environ, **(names or {}), "PATH": path, "KUBECONFIG": str(self.control_plane.kubeconfig)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            preexec_fn=die_with_parent(),
        )
        async with asyncio.timeout(GUARD_SECONDS):
            said, _ = await process.communicate()
        assert process.returncode == 0, f"{script}\nended with {process.returncode}: {said.decode()}"
        return said.decode()


@dataclass
class Page:
    """One runbook. `blocks` and `commands` are those that have not been run yet."""

    shell: Shell
    names: dict[str, str]
    """The values of the variables that the page sets to an example."""
    blocks: list[str]
    commands: list[str]
    """The commands within the text, in their order."""

    async def look(self) -> str:
        """Run the next block as a whole. Returns what it printed."""
        return await self.shell.run(_EXAMPLE.sub(self._set, self.blocks.pop(0)), self.names)

    async def do(self, beginning: str, **words: str) -> str:
        """Run the next command in the text with this beginning. `words`: what a person puts in place of each word."""
        text = next((each for each in self.commands if each.startswith(beginning)), None)
        assert text is not None, f"no command begins with {beginning!r}: {self.commands}"
        self.commands.remove(text)
        for word, name in words.items():
            text, count = re.subn(rf"(?<![\w$-]){word}(?![\w-])", name, text)
            assert count, f"{word} is not in `{text}`"
        return await self.shell.run(text, self.names)

    def leave(self, beginning: str, *, why: str) -> None:
        """Skip the next command with this beginning, which cannot run on this control plane."""
        assert why
        self.commands.remove(next(each for each in self.commands if each.startswith(beginning)))

    def _set(self, line: re.Match[str]) -> str:
        unknown = [each for each in re.findall(r"([A-Z]+)=", line.group()) if each not in self.names]
        assert not unknown, f"nothing tells {unknown}"
        return ""


@asynccontextmanager
async def walked(shell: Shell, alert: str, job: Job | None = None, **names: str) -> AsyncIterator[Page]:
    """The page of that alert. At the end, each of its commands must have been run."""
    text = (RUNBOOKS / f"{alert}.md").read_text()
    of_job = {} if job is None else {"NS": job.namespace, "JOB": job.name}
    blocks, commands = _BLOCK.findall(text), _INLINE.findall(_BLOCK.sub("", text))
    page = Page(shell, {**of_job, **names}, blocks, commands)
    yield page
    assert (page.blocks, page.commands) == ([], []), f"{alert}: left out"
