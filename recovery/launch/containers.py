"""The settings of training containers that a person wrote, and where: image, command, variables, resources.

The modules of Trainer's frameworks report what Trainer itself adds.
"""

from collections.abc import Iterator, Mapping
from decimal import Decimal

from recovery.launch.environment import reserved_by
from recovery.launch.launch import Launch, Member, Setting
from recovery.launch.places import Place, written
from recovery.launch.quantity import shown
from recovery.launch.resolving import NODE, TRAINER_STEP
from recovery.launch.views import Container, EnvVar, Resources, Trainer


def settings(launch: Launch) -> Iterator[Setting]:
    for member in launch.members:
        if not _has_framework(launch):
            yield _pods(member)
        if member.main is not None:
            target = f"container {member.main.name} of ReplicatedJob {member.job.name}"
            yield from _commanded(launch, member, member.main, target)
            _, reserved = reserved_by(launch)
            for variable in (each for each in member.main.env if each.name not in reserved):
                value = "known only in the cluster (valueFrom)" if variable.value is None else variable.value
                yield Setting(target, variable.name, value, _variable_rule(launch, variable), variable.place)
            if member.main.resources is not None:
                yield from _resources(launch, member.main.resources, target)


def _has_framework(launch: Launch) -> bool:
    """Whether the runtime has a framework, whose own module then reports the pods."""
    policy = launch.runtime.ml_policy if launch.runtime is not None else None
    return policy is not None and (policy.torch is not None or policy.mpi is not None)


def _pods(member: Member) -> Setting:
    replicas = 1 if member.job.replicas is None else member.job.replicas
    rule = f"replicas {replicas}, each with {member.pods // replicas if replicas else 0} pods at once"
    return Setting(f"ReplicatedJob {member.job.name}", "pods", str(member.pods), rule, member.job.place)


def _commanded(launch: Launch, member: Member, main: Container, target: str) -> Iterator[Setting]:
    trainer = launch.train_job.trainer if launch.train_job is not None else None
    if member.job.ancestor != TRAINER_STEP or main.name != NODE:
        trainer = None
    named = {"image": main.image, "command": " ".join(main.command), "args": " ".join(main.args)}
    for name, value in named.items():
        if value:
            place = trainer.place / name if trainer is not None and _sets(trainer, name) else main.place / name
            yield Setting(target, name, value, _rule(launch, place), place)


def _sets(trainer: Trainer, name: str) -> bool:
    return bool({"image": trainer.image, "command": trainer.command, "args": trainer.args}[name])


def _variable_rule(launch: Launch, variable: EnvVar) -> str:
    return _rule(launch, Place(variable.place.document, variable.place.path[:-1]))


def _resources(launch: Launch, resources: Resources, target: str) -> Iterator[Setting]:
    trainer = launch.train_job.trainer if launch.train_job is not None else None
    own = trainer.resources if trainer is not None else None
    kinds: tuple[tuple[str, Mapping[str, Decimal], Mapping[str, Decimal]], ...] = (
        ("requests", resources.requests, own.requests if own is not None else {}),
        ("limits", resources.limits, own.limits if own is not None else {}),
    )
    merged = own is not None and resources.place == own.place
    for kind, amounts, mine in kinds:
        for name, amount in amounts.items():
            if merged and name not in mine:
                rule = f"the runtime: spec.trainer.resourcesPerNode.{kind} of the TrainJob does not name it"
                yield Setting(target, f"{kind} {name}", shown(amount), rule)
            else:
                place = resources.place / kind / name
                yield Setting(target, f"{kind} {name}", shown(amount), _rule(launch, resources.place / kind), place)


def _rule(launch: Launch, place: Place) -> str:
    """The field, and the object that it belongs to."""
    if launch.runtime is not None and place.document == launch.runtime.place.document:
        return f"the {place.path[-1]} of the runtime's container"
    return f"{written(place.path)} of the {'TrainJob' if launch.train_job is not None else 'JobSet'}"
