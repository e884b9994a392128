"""Containers as declared by pods and by the pod templates of Jobs, with the fields that decisions read."""

from collections.abc import Iterable
from sys import intern

import msgspec

from recovery.core.model.collective import LaunchFacts
from recovery.core.model.container_template import ContainerTemplate, RestartRule
from recovery.kube.projections.accelerators import accelerators
from recovery.kube.projections.launches import launch_facts


class Claim(msgspec.Struct, frozen=True):
    """One of the pod's DRA claims that a container uses; `request` empty: all of its devices."""

    name: str
    request: str = ""


class ContainerResources(msgspec.Struct, frozen=True):
    """What a container asks for."""

    limits: dict[str, str] = {}
    requests: dict[str, str] = {}
    claims: tuple[Claim, ...] = ()

    @property
    def gpus(self) -> int:
        """Accelerators that are extended resources. Requests count only where a resource has no limit."""
        return accelerators(self.requests | self.limits)


class _ExitCodes(msgspec.Struct, frozen=True):
    operator: str
    values: tuple[int, ...] = ()


class _RestartRule(msgspec.Struct, frozen=True, rename="camel"):
    exit_codes: _ExitCodes | None = None


class ContainerSpec(msgspec.Struct, frozen=True, rename="camel"):
    """A container, or an init container."""

    name: str = ""
    resources: ContainerResources = ContainerResources()
    restart_policy: str | None = None
    restart_policy_rules: tuple[_RestartRule, ...] = ()

    @property
    def native_sidecar(self) -> bool:
        """An init container that runs beside the others (KEP-753)."""
        return self.restart_policy == "Always"


class TemplateContainerSpec(ContainerSpec, frozen=True, rename="camel"):
    """A container of a Job's pod template, with its launch. Containers of pods are many more, so theirs is not read."""

    command: msgspec.Raw = msgspec.Raw(b"null")
    args: msgspec.Raw = msgspec.Raw(b"null")
    env: msgspec.Raw = msgspec.Raw(b"null")

    @property
    def launch(self) -> LaunchFacts | None:
        """What its launch shows about the program. None: nothing."""
        return launch_facts(self.command, self.args, self.env)


def templates(specs: Iterable[ContainerSpec]) -> tuple[ContainerTemplate, ...]:
    """The containers of a pod template. DRA claims count where no container asks for extended resources."""
    containers = tuple(specs)
    by_claims = not any(each.resources.gpus for each in containers)
    return tuple(
        ContainerTemplate(
            name=intern(each.name),
            accelerators=len(each.resources.claims) if by_claims else each.resources.gpus,
            restart_policy=intern(each.restart_policy or ""),
            restart_rules=tuple(
                RestartRule(rule.exit_codes.operator, rule.exit_codes.values)
                for rule in each.restart_policy_rules
                if rule.exit_codes is not None
            ),
            launch=each.launch if isinstance(each, TemplateContainerSpec) else None,
        )
        for each in containers
    )
