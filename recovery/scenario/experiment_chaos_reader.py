"""Reads the chaos of an experiment, or reports why it does not run on a cluster."""

import re
import sys
from collections.abc import Mapping

from recovery.core.model.drill import DRILL_MAX_SECONDS, DrillAction, MarkedTaint
from recovery.core.model.fleet_ledger import QUARANTINE_TAINT
from recovery.core.model.ledger import Phase
from recovery.scenario.cluster_actions import INSTEAD, ON_A_CLUSTER, SIMULATED_KINDS, does_not_run
from recovery.scenario.experiment_chaos import ExperimentChaos
from recovery.scenario.input_problems import Problems
from recovery.scenario.schema import (
    AnyChaos,
    Chaos,
    MachineAction,
    PhysicalMachineChaos,
    PodAction,
    PodChaos,
    ScenarioTaint,
    SelectionMode,
)
from recovery.scenario.selection import how_many, misfit, number_of
from recovery.scenario.strict_input import read_what_is_right

AWAITED = (
    Phase.DETECTED,
    Phase.DECIDED,
    Phase.STOPPING,
    Phase.TEARING_DOWN,
    Phase.BACKOFF,
    Phase.SCHEDULING,
    Phase.STARTING,
    Phase.RENDEZVOUS,
    Phase.RESUMING,
)
"""The phases that chaos can wait for. Fencing waits for dead nodes, which no experiment causes."""

_TAINTS_OF_OTHERS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "node-role.kubernetes.io/")
"""Kubernetes and clouds set and remove them, so an experiment could not take its own back."""
_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


class _AnyMoment(Chaos, frozen=True):
    """The fields that every chaos has: when it happens, and what it selects."""


class ExperimentChaosReader:
    """Reads the entries of one experiment."""

    def __init__(self, target: str | None, repeat: int, problems: Problems) -> None:
        """`target`: the job of the experiment, as it is written. None: it is not known."""
        self._target = target
        self._repeat = repeat
        self._problems = problems

    def read(self, chaos: AnyChaos, path: str) -> ExperimentChaos | None:
        """None: something is wrong with the entry, and has been reported."""
        if not isinstance(chaos, PodChaos | PhysicalMachineChaos):
            self._refuse_kind(str(chaos.__struct_config__.tag), path)
            return None
        before = len(self._problems.found)
        action = ON_A_CLUSTER.get(chaos.action)
        if action is None:
            self._problems.add(f"{path}.action", does_not_run(chaos.action))
            if chaos.action not in INSTEAD:
                return None
        at_seconds = self._moment(chaos, path)
        self._selector(chaos, path)
        mode = self._mode(chaos, path)
        self._unused(chaos, path)
        taint = self._taint(chaos, path)
        if action is None or mode is None or len(self._problems.found) > before:
            return None
        return ExperimentChaos(
            path,
            int(path.removeprefix("chaos[").removesuffix("]")),
            action,
            mode,
            number_of(chaos.value),
            chaos.selector.indexes,
            at_seconds,
            chaos.during,
            chaos.grace_period if isinstance(chaos, PodChaos) else None,
            taint if action is DrillAction.TAINT else None,
        )

    def check_unread(self, body: object, path: str) -> None:
        """Checks an entry that does not fit the schema: its kind, its action, its moment and its selector."""
        if not isinstance(body, Mapping):
            return
        kind, action = body.get("kind"), body.get("action")
        if isinstance(kind, str) and kind in SIMULATED_KINDS:
            self._refuse_kind(kind, path)
            return
        known = {*PodAction, *MachineAction} - ON_A_CLUSTER.keys()
        if isinstance(action, str) and action in known:
            self._problems.add(f"{path}.action", does_not_run(action))
        said = {name: body[name] for name in ("at", "during", "event", "selector") if name in body}
        chaos = read_what_is_right({**said, "kind": _AnyMoment.__name__}, _AnyMoment, path).value
        if chaos is not None:
            self._moment(chaos, path)
            self._selector(chaos, path)

    def _refuse_kind(self, kind: str, path: str) -> None:
        """The entry has to go, so nothing is said about its other fields."""
        self._problems.forget(path)
        self._problems.add(f"{path}.kind", does_not_run(kind))

    def _moment(self, chaos: Chaos, path: str) -> float | None:
        """The seconds from the start of the repeat. None: it waits for a phase."""
        if chaos.event is not None:
            self._problems.add(f"{path}.event", "numbers requests in the simulator; say at or during")
        seconds = self._problems.seconds(chaos.at, f"{path}.at", may_be_none=True) if chaos.at else 0.0
        if seconds * self._repeat >= DRILL_MAX_SECONDS:
            repeats = f" in each of {self._repeat} repeats" if self._repeat > 1 else ""
            limit = f"the longest drill, {DRILL_MAX_SECONDS // 3600}h"
            self._problems.add(f"{path}.at", f"{chaos.at}{repeats} is not within {limit}; say less")
        if chaos.during is None:
            return seconds
        if chaos.at:
            self._problems.add(f"{path}.during", "cannot be said together with at; leave one out")
        if path == "chaos[0]":
            self._problems.add(f"{path}.during", "waits for an incident, which the first entry causes; say at")
        if chaos.during not in AWAITED:
            self._problems.add(f"{path}.during", f"{chaos.during} is not awaited; say one of {', '.join(AWAITED)}")
        return None

    def _selector(self, chaos: Chaos, path: str) -> None:
        selector, path = chaos.selector, f"{path}.selector"
        if selector.job and self._target is not None:
            names = {self._target, self._target.rpartition("/")[2]}
            if selector.job not in names:
                self._problems.add(f"{path}.job", f"{selector.job!r} is not the target, {self._target}; leave it out")
        for field, value in (("controller", selector.controller), ("component", selector.component)):
            if value is not None:
                self._problems.add(f"{path}.{field}", "means nothing to a job of a cluster; select by indexes")
        if len(set(selector.indexes)) < len(selector.indexes):
            self._problems.add(f"{path}.indexes", "an index stands there twice")
        if negative := [index for index in selector.indexes if index < 0]:
            self._problems.add(f"{path}.indexes", f"{', '.join(map(str, negative))}: completion indexes count from 0")

    def _mode(self, chaos: PodChaos | PhysicalMachineChaos, path: str) -> SelectionMode | None:
        """None: it is missing. How many pods the job has is not known, so `selection.select` checks `value` again."""
        mode, value = chaos.mode, chaos.value
        if mode is None:
            if not self._problems.is_wrong(f"{path}.mode"):
                self._problems.add(f"{path}.mode", f"is missing; say one of {', '.join(SelectionMode)}")
            return None
        if mode in (SelectionMode.ONE, SelectionMode.ALL):
            self._problems.unfit(path, f"mode {mode}", value=value)
            return mode
        known = len(set(chaos.selector.indexes)) or None
        most = 100 if mode is SelectionMode.FIXED_PERCENT else sys.maxsize
        if not how_many(mode, value, known or most) and not self._problems.is_wrong(f"{path}.value"):
            self._problems.add(f"{path}.value", misfit(mode, value, known))
        return mode

    def _unused(self, chaos: PodChaos | PhysicalMachineChaos, path: str) -> None:
        """Reports fields that only the simulator uses, and fields of other actions."""
        if isinstance(chaos, PhysicalMachineChaos):
            if chaos.duration is not None:
                taken_back = "what an experiment changes on nodes is taken back at the end of each repeat"
                self._problems.add(f"{path}.duration", f"{taken_back}; leave it out")
            return
        action = chaos.action
        self._problems.unfit(
            path,
            f"{action} on a cluster",
            duration=chaos.duration,
            exit_code=chaos.exit_code,
            sign=chaos.sign,
            target=chaos.target,
            container_names=chaos.container_names or None,
        )
        if action is not PodAction.POD_KILL:
            self._problems.unfit(path, action, grace_period=chaos.grace_period)
        elif chaos.grace_period:
            self._problems.add(f"{path}.gracePeriod", "say 0, or leave it out: then each pod has its own")

    def _taint(self, chaos: PodChaos | PhysicalMachineChaos, path: str) -> MarkedTaint | None:
        """None: the entry has no taint, or another action."""
        if isinstance(chaos, PodChaos):
            return None
        if chaos.action is not MachineAction.TAINT:
            self._problems.unfit(path, chaos.action, taint=chaos.taint)
            return None
        taint = chaos.taint or ScenarioTaint()
        key, value = taint.key, taint.value
        if not _KEY.fullmatch(key):
            self._problems.add(f"{path}.taint.key", f"{key!r} is no key; write it like example.com/unhealthy")
        elif key.startswith(_TAINTS_OF_OTHERS):
            self._problems.add(f"{path}.taint.key", f"{key} belongs to Kubernetes; say a key of your own")
        elif key == QUARANTINE_TAINT:
            self._problems.add(f"{path}.taint.key", f"{key} is the controller's quarantine; say a key of your own")
        if not _VALUE.fullmatch(value):
            self._problems.add(
                f"{path}.taint.value", f"{value!r} is no value; use up to 63 of a-z, A-Z, 0-9, -, _ and ."
            )
        return MarkedTaint(key=key, value=value, effect=taint.effect)
