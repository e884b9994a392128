"""Whether the ranks of a program form one collective, and what the launch of a container shows about that.

It is a property of the program, not of a policy. The command lines stay outside of `core`: the projection reads them
once, and facts have only the answer.
"""

from enum import StrEnum

import msgspec


class Collective(StrEnum):
    """What the end of one rank means for others: the values of the annotation `recovery.trainjob.dev/collective`."""

    REQUIRED = "Required"
    """The others hang until they end, and no rank can join them."""
    SELF_HEALING = "SelfHealing"
    """The others notice it within their own timeout, and a new rank joins them or they go on without it."""
    INDEPENDENT = "Independent"
    """The others go on: no rank waits for another."""


class LaunchFacts(msgspec.Struct, frozen=True):
    """What the command and the variables of a container show about its program."""

    collective: Collective
    shown_by: str
    """The part of the launch that shows it: `torchrun --max-restarts=3`, `mpirun`."""
    starts_all: bool = False
    """It starts and ends the ranks of all pods, as mpirun does. The processes of the other pods, such as sshd, are no
    ranks."""
