"""The history of a walk: for each step, what appeared on each object, and the state of all objects once settled.

Objects are named by role (which Job, which of its incarnations, which index, which pod of that index), because each
cluster makes up its own names and UIDs. Nothing is dated: two clusters differ in their pace, not in their behaviour.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.contract.scene import INDEX, Event, Story

Object = dict[str, Any]

BORN = "born"
GONE = "gone"
GENERATED = re.compile(r"(-\d+)-[a-z0-9]{5}\b")
"""The end of a pod's name in a message."""
FIRST_FAILED = re.compile(r"\(first failed job: (\S+)\)")
MESSAGES_TOLD = frozenset({"Failed", "FailureTarget", "RestartingJobSet"})


@dataclass(frozen=True)
class Section:
    """One step and its consequences."""

    step: str
    acts: list[str]
    """What was done to which object, or that there was no target."""
    appeared: dict[str, list[str]]
    """By role: new facts, in order of appearance."""
    states: dict[str, str]
    """By role: the state of the remaining objects at the end."""
    unsettled: str = ""
    """What was still under way when the patience ran out. Empty: nothing."""


@dataclass(frozen=True)
class History:
    sections: list[Section] = field(default_factory=list)
    too_slow: bool = False
    """The walk was given up, because the cluster was too slow for a step with a fixed time."""


@dataclass
class Stories:
    """What the watches of a walk have reported."""

    train_jobs: Story
    job_sets: Story
    jobs: Story
    pods: Story

    def all(self) -> tuple[Story, ...]:
        return (self.train_jobs, self.job_sets, self.jobs, self.pods)

    def lengths(self) -> list[int]:
        return [len(story.events) for story in self.all()]

    def roles(self) -> dict[str, str]:
        """The role of every object that ever existed, by UID."""
        roles = {
            **_numbered("TrainJob ", self.train_jobs.events),
            **_numbered("JobSet ", self.job_sets.events),
            **_numbered("Job ", self.jobs.events),
        }
        seen: dict[str, int] = {}
        for event in self.pods.events:
            if event.uid not in roles:
                place = f"{roles.get(_owner(event.object), 'no_one')}/{_index(event.object)}"
                seen[place] = seen.get(place, 0) + 1
                roles[event.uid] = f"{place} pod {seen[place]}"
        return roles


def _numbered(prefix: str, events: Iterable[Event]) -> dict[str, str]:
    roles: dict[str, str] = {}
    seen: dict[str, int] = {}
    for event in events:
        if event.uid not in roles:
            seen[event.name] = seen.get(event.name, 0) + 1
            roles[event.uid] = f"{prefix}{event.name}#{seen[event.name]}"
    return roles


def _owner(body: Object) -> str:
    owners = body["metadata"].get("ownerReferences", ())
    return next((str(owner["uid"]) for owner in owners if owner.get("controller")), "")


def _index(pod: Object) -> str:
    return str(pod["metadata"].get("annotations", {}).get(INDEX, ""))


# What appears.


def appeared(stories: Stories, begin: list[int], end: list[int], namespace: str) -> dict[str, list[str]]:
    """By role, from the events between these positions in the four stories."""
    roles = stories.roles()
    words = _Words(stories, namespace)
    found: dict[str, list[str]] = {}
    for story, first, last in zip(stories.all(), begin, end, strict=True):
        before: dict[str, Object] = {event.uid: event.object for event in story.events[:first]}
        for event in story.events[first:last]:
            told = found.setdefault(roles[event.uid], [])
            known = words.facts(before[event.uid]) if event.uid in before else None
            facts = [] if known is not None else [BORN]
            facts += [fact for fact in words.facts(event.object) if fact not in (known or ())]
            facts += [GONE] if event.type == "DELETED" else []
            told += [fact for fact in facts if fact not in told]
            before[event.uid] = event.object
    return {role: told for role, told in found.items() if told}


class _Words:
    """Descriptions of a walk's objects, without the names that a cluster makes up."""

    def __init__(self, stories: Stories, namespace: str) -> None:
        self._stories = stories
        self._namespace = namespace

    def facts(self, body: Object) -> list[str]:
        """All facts about the object. Of a pod's conditions only DisruptionTarget counts: the others come from the
        kubelets, which are the same model everywhere.
        """
        if body["kind"] == "Job" and "deletionTimestamp" in body["metadata"]:
            # Whether its pods count as failed, and the Job with them, is a race that nothing depends on: the Job
            # controller releases all pods of such a Job while the garbage collector deletes them.
            return ["deleting"]
        status = body.get("status", {})
        is_pod = body["kind"] == "Pod"
        facts = [f"{status.get('phase', '')} {status.get('reason', '')}".rstrip()] if is_pod else []
        facts += [
            self._condition(condition, body)
            for condition in status.get("conditions", ())
            if not is_pod or condition["type"] == "DisruptionTarget"
        ]
        if "deletionTimestamp" in body["metadata"]:
            facts.append("deleting")
        return facts

    def _condition(self, condition: Object, body: Object) -> str:
        told = f"{condition['type']}={condition['status']} {condition.get('reason', '')}"
        if condition["type"] in MESSAGES_TOLD and condition.get("message"):
            told += f": {self._message(condition['message'])}"
        if body["kind"] == "Job" and (condition["type"], condition["status"]) == ("Suspended", "False"):
            told += self._dated(condition, body)
        return told

    def _message(self, message: str) -> str:
        message = GENERATED.sub(r"\1-*", message.replace(f"{self._namespace}/", ""))
        named = FIRST_FAILED.search(message)
        if named and self._failed_with(named[1]):
            # JobSet compares dates in whole seconds. Among equal dates it takes the first Job in its cache.
            message = message.replace(named[0], "(first failed job: one of several)")
        return message

    def _failed_with(self, name: str) -> bool:
        """Whether another Job has failed in the same second as one with that name."""
        failed = {
            (event.name, each["lastTransitionTime"])
            for event in self._stories.jobs.events
            for each in event.object.get("status", {}).get("conditions", ())
            if (each["type"], each["status"]) == ("Failed", "True")
        }
        return any(one == name and other != name and at == when for one, at in failed for other, when in failed)

    def _dated(self, condition: Object, job: Object) -> str:
        """Whether the resume is dated before a pod that was created before the resume was written."""
        uid, since = job["metadata"]["uid"], condition["lastTransitionTime"]
        written = min(
            event.position
            for event in self._stories.jobs.events
            if event.uid == uid
            and any(_is_same(each, condition) for each in event.object["status"].get("conditions", ()))
        )
        born = [
            str(event.object["metadata"]["creationTimestamp"])
            for event in self._stories.pods.events
            if event.type == "ADDED" and _owner(event.object) == uid and event.position < written
        ]
        return ", dated before its pods" if any(at > since for at in born) else ""


def _is_same(one: Object, other: Object) -> bool:
    return all(one.get(name) == other.get(name) for name in ("type", "status", "lastTransitionTime"))


# States.


def states(stories: Stories) -> dict[str, str]:
    """By role, for the objects that exist."""
    roles = stories.roles()
    stand = {"TrainJob": _train_job, "JobSet": _job_set, "Job": _job, "Pod": _pod}
    return {
        roles[uid]: stand[body["kind"]](body)
        for story in stories.all()
        for uid, body in sorted(story.present.items(), key=lambda item: roles[item[0]])
    }


def _numbers(status: Mapping[str, Any], *names: str) -> str:
    return " ".join(f"{name}={status[name]}" for name in names if status.get(name))


def _train_job(body: Object) -> str:
    return _replicated(body.get("status", {}).get("jobsStatus", ()))


def _job_set(body: Object) -> str:
    status = body.get("status", {})
    told = _numbers(status, "restarts", "restartsCountTowardsMax", "terminalState")
    return f"{told} {_replicated(status.get('replicatedJobsStatus', ()))}".strip()


def _replicated(statuses: Iterable[Object]) -> str:
    names = ("active", "ready", "succeeded", "failed", "suspended")
    return ", ".join(f"{each['name']}: {_numbers(each, *names) or 'none'}" for each in statuses)


def _job(body: Object) -> str:
    spec, status = body["spec"], body.get("status", {})
    begun = "begun" if "startTime" in status else "not begun"
    counts = _numbers(status, "active", "ready", "succeeded", "failed", "terminating")
    indexes = _numbers(status, "completedIndexes", "failedIndexes")
    uncounted = "uncounted" if status.get("uncountedTerminatedPods") else ""
    told = (begun, f"of {spec['parallelism']}/{spec['completions']}", counts, indexes, uncounted)
    return " ".join(each for each in told if each)


def _pod(body: Object) -> str:
    status = body.get("status", {})
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions", ()))
    held = "held" if body["metadata"].get("finalizers") else ""
    containers = (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
    told = (status.get("phase", ""), "ready" if ready else "", held, ", ".join(map(_container, containers)))
    return " ".join(each for each in told if each)


def _container(status: Object) -> str:
    [(kind, state)] = status["state"].items()
    told = {"waiting": state.get("reason", ""), "running": "runs", "terminated": f"exit {state.get('exitCode')}"}[kind]
    restarts = f" r{status['restartCount']}" if status["restartCount"] else ""
    return f"{status['name']} {told}{restarts}"
