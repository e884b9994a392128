"""A scrape by our monitors: promlint has no complaints, and the recorded series do not depend on the monitor's kind."""

from pathlib import Path

import pytest

from recovery.dashboards.series import job_series
from tests.cluster.conftest import StartsController, StartsTraining
from tests.cluster.controller_record import ask
from tests.cluster.controlplane.build import Toolbox
from tests.prometheus.monitoring import monitored, of
from tests.prometheus.promtool import run

RANKS = 4
SCRAPE_LABELS = {"instance", "pod", "container", "endpoint", "service", "job", "exported_namespace"}


async def test_the_exposition_passes_promlint(
    toolbox: Toolbox, training: StartsTraining, controller: StartsController
) -> None:
    await training(ranks=RANKS)
    async with controller() as process:
        _, text = await ask(process, "/metrics")
    done = run(toolbox.binary("promtool"), "check", "metrics", stdin=text)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    assert "recovery_leader" in text


@pytest.mark.parametrize("kind", ["ServiceMonitor", "PodMonitor"])
async def test_every_monitor_records_the_same_series_with_and_without_our_labels(
    kind: str, toolbox: Toolbox, training: StartsTraining, controller: StartsController, tmp_path: Path
) -> None:
    job = await training(ranks=RANKS)
    gpus = of(job, job_series("recovery_job_gpus"))
    async with (
        controller() as process,
        monitored(toolbox, tmp_path / "honoured", kind=kind) as honoured,
        monitored(toolbox, tmp_path / "overridden", kind=kind, override=True) as overridden,
    ):
        for each in (honoured, overridden):
            each.scrape(controller_1=process)
        answers = []
        for each in (honoured, overridden):
            answers.append(await each.prometheus.until(gpus, lambda answer: bool(answer) and answer[0][1] == RANKS * 8))
            for name in ("recovery_failures_total", "recovery_job_phase", "recovery_gpus_idle"):
                found = await each.prometheus.until(of(job, job_series(name)))
                assert {key for labels, _ in found for key in labels} & SCRAPE_LABELS == set()
        assert answers[0] == answers[1]
        raw = f'recovery_job_gpus{{exported_namespace="{job.namespace}"}}'
        assert await honoured.prometheus.query(raw) == []
        assert len(await overridden.prometheus.query(raw)) == 1
