"""Follows a runbook: takes a command from the page exactly as written, and runs it."""

import asyncio
import os
import re
import shlex
import sys

from recovery.generated_files import REPOSITORY
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import Job

_COMMAND = re.compile(r"(?:^|`)((?:recovery|kubectl) [^`\n]+)", re.MULTILINE)


def command_of(alert: str, beginning: str) -> str:
    """The only command of the page with this beginning. Raises ValueError if there is none, or more than one."""
    page = (REPOSITORY / "docs" / "runbooks" / f"{alert}.md").read_text()
    commands: list[str] = _COMMAND.findall(page)
    (found,) = {command for command in commands if command.startswith(beginning)}
    return found


async def follow(control_plane: ControlPlane, alert: str, beginning: str, job: Job | None = None, **names: str) -> str:
    """Run that command with the names of the job, and with `names` in place of POD, NODE and the like. Returns its
    output. Raises AssertionError if it fails."""
    text = command_of(alert, beginning)
    if job is not None:
        names |= {"$JOB": job.name, "$NS": job.namespace, "JOB": job.name, "NS": job.namespace}
    for word, name in names.items():
        text = re.sub(rf"(?<![\w$]){re.escape(word)}(?!\w)", name, text)
    program, *arguments = shlex.split(text)
    if program == "kubectl":
        return await control_plane.kubectl(*arguments)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "recovery.cli.entry", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "KUBECONFIG": str(control_plane.kubeconfig)},
    )
    async with asyncio.timeout(GUARD_SECONDS):
        out, _ = await process.communicate()
    assert process.returncode == 0, f"`{text}` ended with {process.returncode}: {out.decode()}"
    return out.decode()
