"""A Prometheus with our rules that scrapes controllers as the operator would configure it."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.controlplane.build import Toolbox
from tests.cluster.scene import ControllerProcess, Job
from tests.prometheus.operator import scrape_config
from tests.prometheus.server import PrometheusServer, Sample, Targets
from tests.prometheus.shortened import shortened


def firing(name: str, job: Job | None = None) -> str:
    of_job = "" if job is None else f', namespace="{job.namespace}", job_name="{job.name}"'
    return f'ALERTS{{alertname="{name}", alertstate="firing"{of_job}}}'


def silent(answer: list[Sample]) -> bool:
    return not answer


@dataclass
class Monitoring:
    prometheus: PrometheusServer
    targets: Targets

    def scrape(self, **controllers: ControllerProcess) -> None:
        """Scrape these replicas from now on, each as the pod of that name."""
        self.targets.set({pod: each.metrics_url().removeprefix("http://") for pod, each in controllers.items()})

    async def scraped_twice(self) -> None:
        """Wait until the leader has answered two more scrapes."""
        [(_, last)] = await self.prometheus.until("timestamp(recovery_leader == 1)", lambda found: len(found) == 1)
        await self.prometheus.until(f"timestamp(recovery_leader == 1) > {last + 1.5}")

    async def fires(self, name: str, job: Job | None = None) -> Mapping[str, str]:
        """Wait until the alert fires. Returns its annotations, with the templates filled in."""
        await self.prometheus.until(firing(name, job))
        return next(
            each["annotations"]
            for each in await self.prometheus.alerts()
            if each["labels"]["alertname"] == name
            and (job is None or (each["labels"]["namespace"], each["labels"]["job_name"]) == (job.namespace, job.name))
        )

    async def is_resolved(self, name: str, job: Job | None = None) -> None:
        await self.prometheus.until(firing(name, job), silent)


@asynccontextmanager
async def monitored(
    toolbox: Toolbox, folder: Path, *, kind: str = "ServiceMonitor", override: bool = False, members: str | None = None
) -> AsyncIterator[Monitoring]:
    """`members`: the address of kube-state-metrics. None: it is not scraped."""
    folder.mkdir(parents=True, exist_ok=True)
    targets = Targets(folder / "targets.json")
    scrapes = [scrape_config(kind, targets.file, override_honor_labels=override)]
    if members is not None:
        scrapes.append(
            {"job_name": "kube-state-metrics", "honor_labels": True, "static_configs": [{"targets": [members]}]}
        )
    binary = toolbox.binary("prometheus")
    async with PrometheusServer.running(binary, folder, scrapes=scrapes, rules=shortened()) as server:
        yield Monitoring(server, targets)


def of(job: Job, series: str, **labels: str) -> str:
    chosen = {"namespace": job.namespace, "job_name": job.name, **labels}
    matchers = ", ".join(f'{name}="{value}"' for name, value in chosen.items())
    return f"{series}{{{matchers}}}"
