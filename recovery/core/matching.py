"""Asks the rules of a policy about a disruption: which one decides, and whether late evidence could still change that."""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from recovery.core.classify import Disruption, Finding
from recovery.core.evidence import Evidence
from recovery.core.facts import Snapshot
from recovery.core.rules import Rule


class Match(msgspec.Struct, frozen=True):
    """A rule that matches a finding."""

    rule: Rule
    number: int
    """Its place in `spec.rules`, from 0."""
    why: str
    """What of it matched, in words: `exit code 42 of container trainer is in [42, 43]`."""
    finding: Finding


class Answer(msgspec.Struct, frozen=True):
    """What the rules say about a disruption."""

    match: Match | None = None
    """The rule that decides. None: none matches, and `restart` applies."""
    ignored: tuple[Match, ...] = ()
    """The causes that an Ignore rule takes out; what is left decides. All of them: the disruption is ignored."""
    changes_at: datetime | None = None
    """When time alone could make an earlier rule match (`for` of a node condition). None: never."""


def ask(rules: tuple[Rule, ...], disruption: Disruption, snapshot: Snapshot, now: datetime) -> Answer:
    """The first rule that matches the root of the disruption.

    Only causes are asked about: what is consequence (`Finding.cascade`) matches no rule, but where nothing else is
    known, so that a FailJob rule never meets the exit code of a cascade. A cause that an Ignore rule matches is taken
    out, and the next one is the root; what is only consequence is ignored with the cause that it follows from.
    """
    return Answer()


def may_change(rules: tuple[Rule, ...], disruption: Disruption, snapshot: Snapshot) -> bool:
    """Evidence that is still to come could make a rule with Ignore or FailJob decide, or unmake such a decision.

    Only where there is such a rule for the ReplicatedJobs of the disruption.
    """
    return False


def node_faults(rules: tuple[Rule, ...], snapshot: Snapshot, now: datetime) -> tuple[Evidence, ...]:
    """Evidence that the rules themselves make of nodes: a member runs on a node whose conditions or taints a rule names.

    Only of rules that ask for nothing but nodes (conditions, taints, ReplicatedJobs), with action RecreateGroup or
    ReplaceNode: who writes such a rule wants it acted upon though the member still runs. Its key names the pod and the
    rule, so that it is dealt with once for each pod.
    """
    return ()


def next_node_fault_at(rules: Iterable[Rule], snapshot: Snapshot, now: datetime) -> datetime | None:
    """When time alone (`for`) will make more of them. None: never."""
    return None
