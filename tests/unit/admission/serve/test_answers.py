"""The answers of the webhooks over HTTPS: which objects they admit, refuse and warn about."""

import asyncio
import base64
import json
import logging
import ssl
from contextlib import suppress
from typing import Any

import aiohttp
import pytest
from kopf._core.reactor import inventory
from structlog.testing import capture_logs

from recovery.admission import webhooks
from recovery.admission.https_server import WEBHOOK_LIMITS
from tests.unit.admission.api import recovery_config, recovery_policy
from tests.unit.admission.serve.webhook_client import (
    BAD,
    JOB,
    RUNTIME,
    Cluster127,
    Folder,
    asked,
)
from tests.unit.fake_api import Object
from tests.unit.launch.pages import merged
from tests.unit.patience import comes

ENDING = {**BAD, "metadata": {**BAD["metadata"], "deletionTimestamp": "2026-03-01T12:00:00Z"}}


LABELLED = {**BAD, "metadata": {**BAD["metadata"], "labels": {"team": "a"}}}


PAUSED = recovery_config(paused=True)


ANSWERS: dict[str, tuple[Object, bool, int]] = {
    "a good one": (asked(recovery_policy()), True, 0),
    "a bad one": (asked(BAD), False, 0),
    "a good one becomes bad": (asked(BAD, recovery_policy()), False, 0),
    "a bad one is labelled": (asked(LABELLED, BAD), True, 2),
    "a bad one loses its last finalizer": (asked(ENDING, BAD), True, 0),
    "a pause": (asked(PAUSED), True, 1),
}


@pytest.mark.parametrize(("request_body", "allowed", "warnings"), ANSWERS.values(), ids=ANSWERS.keys())
async def test_answers(folder: Folder, request_body: Object, allowed: bool, warnings: int) -> None:
    made = folder.certify()
    async with folder.admission() as admission:
        await comes(lambda: admission.up)
        answer = await folder.review(made, request_body)
    assert (answer["allowed"], len(answer.get("warnings", []))) == (allowed, warnings)
    assert "patch" not in answer
    outcome = "refused" if not allowed else "warned" if warnings else "allowed"
    assert folder.reviews == [(request_body["resource"]["resource"], outcome)]


async def test_a_refusal_names_every_field_and_its_fix_and_is_no_error_of_ours(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    made = folder.certify()
    with caplog.at_level(logging.WARNING):
        async with folder.admission() as admission:
            await comes(lambda: admission.up)
            answer = await folder.review(made, asked(BAD))
    assert answer["status"] == {
        "code": 422,
        "message": "spec.budget.limit: -1 is negative; 0 allows only recoveries that use no budget; "
        "spec.budget.window: '7d' is not a duration; write it like 24h, 15m, 10s or 500ms",
    }
    assert [record.getMessage() for record in caplog.records if record.name.startswith("kopf")] == []


RESERVED = merged(JOB, {"spec": {"trainer": {"env": [{"name": "PET_NNODES", "value": "2"}]}}})


NO_NODES = merged(RESERVED, {"spec": {"trainer": {"numNodes": 0}}})


LEAVING = merged(RESERVED, {"metadata": {"deletionTimestamp": "2026-03-01T12:00:00Z"}})


NO_SIDECAR = merged(
    RUNTIME,
    {"spec": {"mlPolicy": {"torch": {"envInjection": {"targets": [{"jobName": "node", "containerNames": ["side"]}]}}}}},
)


LAUNCH_ANSWERS: dict[str, tuple[Object, list[str]]] = {
    "a good job": (asked(JOB), []),
    "a bad job": (asked(NO_NODES), ["bad-number", "reserved-env"]),
    "a bad job is labelled": (asked(merged(NO_NODES, {"metadata": {"labels": {"a": "b"}}}), NO_NODES), []),
    "a bad job that is being deleted": (asked(LEAVING, JOB), []),
    "a bad runtime": (asked(NO_SIDECAR), ["injection-target"]),
    "a runtime becomes bad": (asked(NO_SIDECAR, RUNTIME), ["injection-target"]),
}


@pytest.mark.parametrize(("request_body", "refused"), LAUNCH_ANSWERS.values(), ids=LAUNCH_ANSWERS.keys())
async def test_train_jobs_and_runtimes_are_refused_with_a_line_for_each_error(
    folder: Folder, request_body: Object, refused: list[str]
) -> None:
    made = folder.certify()
    async with folder.admission() as admission:
        await comes(lambda: admission.up)
        answer = await folder.review(made, request_body)
    lines = answer.get("status", {}).get("message", "").splitlines()
    assert [line.partition(": ")[0] for line in lines] == refused
    assert answer["allowed"] is not bool(refused)
    assert not {"patch", "warnings"} & set(answer)


BIG = merged(NO_NODES, {"metadata": {"annotations": {"notes": "x" * 1024 * 1024}}})


async def test_one_over_the_bound_is_admitted_with_a_warning_and_a_deep_one_refused_with_a_message(
    folder: Folder,
) -> None:
    deep: Object = {}
    for _ in range(400):
        deep = {"deeper": deep}
    made = folder.certify()
    async with folder.admission() as admission:
        await comes(lambda: admission.up)
        big = await folder.review(made, asked(BIG))
        nested = await folder.review(made, asked(merged(JOB, {"spec": {"trainer": deep}})))
    assert big["allowed"]
    assert "too large to be checked" in big["warnings"][0]
    assert nested["status"] == {"code": 422, "message": "the object is nested more than 100 levels deep"}
    assert folder.reviews == [("trainjobs", "warned"), ("trainjobs", "refused")]


async def test_an_object_of_another_namespace_than_its_request_gets_no_verdict_and_nothing_is_read_for_it(
    cluster: Cluster127, folder: Folder
) -> None:
    made = folder.certify()
    theirs = merged(JOB, {"metadata": {"namespace": "victim"}, "spec": {"runtimeRef": {"kind": "TrainingRuntime"}}})
    async with folder.admission() as admission:
        await comes(lambda: admission.up)
        with pytest.raises(aiohttp.ContentTypeError, match="400"):
            await folder.review(made, {**asked(theirs), "namespace": "team"})
    assert not [path for _, path, _ in cluster.requests if "victim" in path]


CPUS = {"requests": {"cpu": 4, "nvidia.com/gpu": None}, "limits": {"cpu": 8, "nvidia.com/gpu": None}}


MISCOUNTED = merged(JOB, {"spec": {"trainer": {"numProcPerNode": None, "resourcesPerNode": CPUS}}})


PREPARED = merged(
    MISCOUNTED, {"metadata": {"annotations": {"recovery.trainjob.dev/prepare-launch": "true", "team": "a"}}}
)


async def test_who_asks_for_it_gets_one_field_and_the_record_of_it(folder: Folder) -> None:
    made = folder.certify()
    async with folder.admission() as admission:
        await comes(lambda: admission.up)
        answers = [
            await folder.review(made, asked(each), webhooks.PREPARE_PATH) for each in (PREPARED, MISCOUNTED, JOB)
        ]
    assert [answer["allowed"] for answer in answers] == [True] * 3
    assert ["patch" in answer for answer in answers] == [True, False, False]
    patch = json.loads(base64.b64decode(answers[0]["patch"]))
    record = "spec.trainer.numProcPerNode=8 (one for each CPU of the limit of 8, rounded up)"
    assert sorted(patch, key=lambda each: str(each["path"])) == [
        {"op": "add", "path": "/metadata/annotations/recovery.trainjob.dev~1prepared", "value": record},
        {"op": "add", "path": "/spec/trainer/numProcPerNode", "value": 8},
    ]


BORN: Object = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "llm-node-0", "namespace": "team", "labels": {"jobset.sigs.k8s.io/jobset-name": "llm"}},
}


DEFECTS = {
    "of a policy": ("from_request", asked(BAD), ""),
    "of a TrainJob": ("verdict_of", asked(RESERVED), ""),
    "in preparing": ("changes_of", asked(PREPARED), webhooks.PREPARE_PATH),
    "at a birth": ("born", asked(BORN), ""),
}


@pytest.mark.parametrize(("broken", "request_body", "path"), DEFECTS.values(), ids=DEFECTS.keys())
async def test_a_defect_of_ours_admits_and_is_logged_with_its_traceback(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, broken: str, request_body: Object, path: str
) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("a defect")

    monkeypatch.setattr(webhooks, broken, fail)
    made = folder.certify()
    with capture_logs() as lines:
        async with folder.admission() as admission:
            await comes(lambda: admission.up)
            answer = await folder.review(made, request_body, path)
    assert answer["allowed"]
    [line] = [line for line in lines if line["log_level"] == "error"]
    assert (line["event"], line["error"]) == ("admitted unchecked: this is a bug", "a defect")
    assert line["exc_info"].__traceback__ is not None
    assert line["object"].endswith(request_body["object"]["metadata"]["name"])
    assert folder.reviews == [(path or request_body["resource"]["resource"], "error")]


async def test_nothing_is_remembered_of_what_passes(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """kopf keeps a memo of each object until it sees the deletion, and no watch ever shows one here."""
    remembered: list[object] = []
    monkeypatch.setattr(inventory.ResourceMemories, "_build_key", lambda _, body: remembered.append(body))
    made = folder.certify()
    async with folder.admission() as admission:
        await comes(lambda: admission.up)
        assert not (await folder.review(made, asked(RESERVED, JOB)))["allowed"]
    assert remembered == []


async def test_clients_that_send_half_a_request_keep_no_review_out(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    """There are more clients than may connect, and each has sent almost as much as a request may have."""
    made = folder.certify()
    trusting = ssl.create_default_context(cadata=made.authorities.decode())
    half = b"POST /recoverypolicies HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 900_000
    held: list[asyncio.StreamWriter] = []
    async with folder.admission() as admission:
        await comes(lambda: admission.up)
        for _ in range(WEBHOOK_LIMITS.connections + 10):
            _, writer = await asyncio.open_connection("127.0.0.1", folder.port, ssl=trusting)
            held.append(writer)
            with suppress(ConnectionError):
                writer.write(half)
                await writer.drain()
        assert (await folder.review(made, asked(recovery_policy())))["allowed"]
        for writer in held:
            writer.transport.abort()
    assert caplog.records == []
