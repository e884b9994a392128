"""What the controller did and what it says: the record of the proxy in front of it, its metrics, its commands.

"It wrote nothing" means something only after the controller has reconciled. `has_reconciled` waits for that.
"""

import asyncio
import json
import sys
from collections.abc import Collection
from dataclasses import dataclass
from itertools import count

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from recovery.core.model.annotations import OWN_ANNOTATION_PREFIX
from recovery.ports import TRAIN_JOBS, Resource
from recovery.telemetry.exposition import FRESH_SECONDS
from tests.cluster.acts import annotate
from tests.cluster.api_proxy import ApiProxy, SeenRequest
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import ControllerProcess, Job

POLICY_STATUS = frozenset({"recoverypolicies/status", "clusterrecoverypolicies/status"})
"""They hold the time at which the policy switched to mode Enforce, and are written once for each switch."""
OWN = POLICY_STATUS | {
    "recoverygroups",
    "recoverygroups/status",
    "recoveryincidents",
    "recoveryincidents/status",
    "events",
}
"""What the controller may write to without touching a workload."""
_QUESTIONS = frozenset({"selfsubjectaccessreviews"})
"""Posted, but not stored: at its start the controller asks which permissions it has."""

RECONCILES = "recovery_reconcile_duration_seconds_count"
_changes = count(1)


class Samples:
    """One scrape of /metrics."""

    def __init__(self, text: str) -> None:
        self._samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def sum(self, name: str, **labels: str) -> float:
        """The sum over all series of that name that carry these labels."""
        return sum(s.value for s in self._samples if s.name == name and labels.items() <= s.labels.items())

    def by(self, label: str, name: str, **labels: str) -> dict[str, float]:
        """The series of that name that carry these labels, keyed by another of their labels."""
        found = (s for s in self._samples if s.name == name and labels.items() <= s.labels.items())
        return {sample.labels[label]: sample.value for sample in found}


async def ask(controller: ControllerProcess, path: str) -> tuple[int, str]:
    """The status and the text of an answer of its HTTP server."""
    async with aiohttp.ClientSession() as session, session.get(controller.metrics_url() + path) as answer:
        return answer.status, await answer.text()


async def scrape(controller: ControllerProcess) -> Samples:
    return Samples((await ask(controller, "/metrics"))[1])


async def has_reconciled(controller: ControllerProcess, *jobs: Job, kind: Resource = TRAIN_JOBS) -> None:
    """Wait until the controller has reconciled each of the jobs again, with all events from before this call.

    An annotation on the TrainJob, or on the JobSet that is the job's own workload, causes the reconcile. It means
    nothing, but it has our prefix, because a change that core does not read reconciles nothing. The events of the other
    watches arrive before it. It is done twice, because the first reconcile to end may have begun
    before the call. The first sleep makes sure that /metrics does not serve an exposition from before the call.
    """
    await asyncio.sleep(FRESH_SECONDS)
    async with asyncio.timeout(GUARD_SECONDS):
        for job in (each for each in jobs for _ in range(2)):
            before = (await scrape(controller)).sum(RECONCILES)
            await annotate(job, f"{OWN_ANNOTATION_PREFIX}look", str(next(_changes)), resource=kind)
            while (await scrape(controller)).sum(RECONCILES) <= before:
                await asyncio.sleep(0.05)


def writes(proxy: ApiProxy, *, of: Collection[str] = (), besides: Collection[str] = ()) -> list[str]:
    """The controller's writes in words, refused ones too, to the resources `of` (empty: all) but not to `besides`."""
    return [
        f"{write.method} {write.resource} {_subject(write)}: {write.status}"
        for write in proxy.writes()
        if write.resource not in _QUESTIONS and (not of or write.resource in of) and write.resource not in besides
    ]


def workload_writes(proxy: ApiProxy) -> list[str]:
    """The writes to anything but the controller's own objects."""
    return writes(proxy, besides=OWN)


def jobs_written_about(proxy: ApiProxy, *jobs: Job) -> set[str]:
    """The names of the jobs that a write concerns, by its path or by the name of the object that it creates."""
    subjects = [_subject(write) for write in proxy.writes() if write.resource not in _QUESTIONS]
    return {job.name for job in jobs for subject in subjects if subject.startswith((f"{job.name}-", f"{job.name}."))}


def _subject(write: SeenRequest) -> str:
    """Name of the object that was written."""
    if write.method == "POST":
        return str(json.loads(write.body)["metadata"]["name"])
    parts = write.path.split("/")
    return parts[parts.index("namespaces") + 3]


@dataclass(frozen=True)
class Ended:
    """A command that has ended, and what it printed."""

    exit_code: int
    out: str
    err: str


async def recovery(*arguments: str) -> Ended:
    """Run `recovery` as a user does."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "recovery.cli.entry",
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(GUARD_SECONDS):
            out, err = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise AssertionError(f"`recovery {' '.join(arguments)}` did not end within {GUARD_SECONDS:.0f} s") from None
    assert process.returncode is not None
    return Ended(process.returncode, out.decode(), err.decode())
