"""Executes stock torchrun in the agent's place."""

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from .console import say_on_stderr
from .rank_environment import LAUNCHER, without_agent


def interpreter_flags(original: Sequence[str] | None = None) -> list[str]:
    """The flags that the interpreter was started with, without what it runs. None: those of this interpreter."""
    words = list(sys.orig_argv if original is None else original)[1:]
    return words[: words.index("-c")] if "-c" in words else []


def stock_command(arguments: Sequence[str]) -> list[str]:
    """The command that `sitecustomize` has replaced."""
    launcher = os.environ.get(LAUNCHER)
    program = [launcher] if launcher else ["-m", "torch.distributed.run"]
    return [sys.executable, *interpreter_flags(), *program, *arguments]


def become_torchrun(arguments: Sequence[str], reason: str) -> NoReturn:
    """Execute it as if the agent had never been added. One line says why."""
    say_on_stderr(f"stock torchrun runs this launch: {reason}")
    command = stock_command(arguments)
    os.execve(command[0], command, without_agent(os.environ))
