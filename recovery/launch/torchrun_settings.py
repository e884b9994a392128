"""The settings that torchrun uses in the pods of a ReplicatedJob: its flags, else its variables, else its defaults.

Each flag has a variable (torch/distributed/argparse_util.py: `env`), and if a flag appears twice, the last one counts.
Trainer sets five of these variables, and overrides those of the runtime's container.
"""

import re
from collections.abc import Mapping

from recovery.launch.commands import Torchrun, variable_of
from recovery.launch.environment import MASTER_ADDRESS, MASTER_PORT, NODE_RANK, NUM_NODES, PROCESSES, TORCHTUNE
from recovery.launch.fields import is_placeholder
from recovery.launch.launch import Launch, Member
from recovery.launch.shell import script_in
from recovery.launch.views import Container

DEFAULTS: Mapping[str, str] = {
    "nnodes": "1:1",
    "node-rank": "0",
    "master-addr": "127.0.0.1",
    "rdzv-backend": "static",
    "rdzv-endpoint": "",
}
"""The defaults of torch/distributed/run.py."""
OF_TRAINER = frozenset({NUM_NODES, PROCESSES, NODE_RANK, MASTER_ADDRESS, MASTER_PORT})
_TAKES_IN = re.compile(r"(?:^|[;&|(\s])(?:source|eval|\.)\s", re.MULTILINE)
_VARIABLE = re.compile(r"\$\{(\w+)\}|\$\((\w+)\)|\$(\w+)")
"""A variable as a shell expands it, and as the kubelet expands it (`$(NAME)`)."""


def goes_by(launch: Launch, member: Member, run: Torchrun, flag: str) -> str | None:
    """The value that torchrun uses for that flag. None: it is not known here, or differs from pod to pod."""
    main = member.main
    if main is None or is_placeholder(run.script):
        return None
    if flag in run.flags:
        return filled(main, run.flags[flag])
    name = variable_of(flag)
    if _sets_variables(main) or any(name in word for word in (*main.command, *main.args)):
        return None
    if name in OF_TRAINER and trainer_sets(launch, member):
        return _of_trainer(launch, member, name)
    found = next((each for each in reversed(main.env) if each.name == name), None)
    if found is not None:
        return found.value
    return None if main.has_env_from else DEFAULTS[flag]


def _sets_variables(main: Container) -> bool:
    """Whether variables may be set that the manifest does not show: by the image's entrypoint, or by a file that the
    script sources."""
    script = script_in([*main.command, *main.args])
    return not main.command or (script is not None and _TAKES_IN.search(script.text) is not None)


def trainer_sets(launch: Launch, member: Member) -> bool:
    """Whether Trainer sets its variables in the pods of that ReplicatedJob. For a runtime by itself, the answer assumes
    that its TrainJobs have a spec.trainer."""
    policy = launch.runtime.ml_policy if launch.runtime is not None else None
    if policy is None or policy.torch is None or member.job.ancestor != "trainer":
        return False
    return launch.train_job is None or launch.train_job.trainer is not None


def filled(main: Container, value: str) -> str | None:
    """The value with the container's variables expanded. None: one of them is not known here."""
    if "{{" in value:
        return None
    script = script_in([*main.command, *main.args])
    known = {each.name: each.value for each in main.env}
    text = value
    for found in _VARIABLE.finditer(value):
        by_kubelet, by_shell = found[2], found[1] or found[3]
        name = by_kubelet or by_shell
        own = known.get(name)
        if own is None or "$" in own or (script is None and not by_kubelet):
            return None  # without a shell nothing replaces $NAME
        if script is not None and (_sets_variables(main) or re.search(rf"\b{name}=", script.text)):
            return None  # the script sets it itself
        text = text.replace(found[0], own)
    return None if "$" in text else text


def _of_trainer(launch: Launch, member: Member, name: str) -> str | None:
    if name == NUM_NODES:
        return str(member.pods)
    if name == MASTER_ADDRESS and launch.train_job is not None:
        torchtune = launch.train_job.trainer is not None and launch.train_job.trainer.command == TORCHTUNE
        return None if torchtune else f"{launch.name}-node-0-0.{launch.name}"
    return None
