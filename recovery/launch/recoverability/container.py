"""Signs of what a training container does, in its command line and its variables."""

import re
from typing import Literal

from recovery.launch.launch import Launch
from recovery.launch.places import Place
from recovery.launch.views import Container

Sign = Literal["emergency checkpoint", "object store", "resume", "settings elsewhere"]

_SIGNS: dict[Sign, re.Pattern[str]] = {
    # Megatron's --exit-signal-handler, and names that scripts use for the same
    "emergency checkpoint": re.compile(r"sigterm|emergency|preempt|exit[-_]signal|signal[-_]handler", re.IGNORECASE),
    # any URL except of this machine or a peer, credentials, a bucket that is not DDP's (--bucket-cap-mb)
    "object store": re.compile(
        r"(?!(?:file|tcp|env|unix)://)\b[a-z][a-z0-9+.-]*://|bucket(?![-_]?(?:cap|size))"
        r"|AWS_|AZURE_STORAGE|GOOGLE_APPLICATION|S3_",
        re.IGNORECASE,
    ),
    "resume": re.compile(r"resum|snapshot|check[-_]?point|ckpt|restor|(?:\b|_)load(?:\b|[-_])", re.IGNORECASE),
    # a settings file or a shell script may set what the command line does not
    "settings elsewhere": re.compile(r"\.(?:ya?ml|toml|json|gin|cfg|ini|sh)\b|config", re.IGNORECASE),
}


def says(container: Container, sign: Sign) -> bool:
    """Whether the command, an argument, or the name or value of a variable shows the sign."""
    return _SIGNS[sign].search(_text(container)) is not None


def _text(container: Container) -> str:
    """Each word on a line of its own, so that no sign matches across two words."""
    variables = (part for each in container.env for part in (each.name, each.value or ""))
    return "\n".join((*container.command, *container.args, *variables))


def command_place(launch: Launch, main: Container) -> Place:
    """Where to change the command line: in the TrainJob if it has one, because that replaces the runtime's."""
    trainer = launch.train_job.trainer if launch.train_job is not None else None
    if trainer is not None and trainer.args:
        return trainer.place / "args"
    if trainer is not None and trainer.command:
        return trainer.place / "command"
    return main.place
