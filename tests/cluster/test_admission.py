"""Admission on a real API server, with the shipped webhooks, certificates and rights.

There is no Service network here, so the API server calls a local port in place of the Service. All else is as shipped.
The controller's ServiceAccount makes the certificate, injects it and writes the conditions.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from recovery.admission.certificates import CONFIGURATION_NAME, SECRET_NAME
from tests.cluster.controller_record import ask
from tests.cluster.controlplane.ports import PortClaims
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.scene import REPOSITORY, ControllerProcess, Object, policy, train_job
from tests.cluster.webhooks import SYSTEM, Webhooks, config, eventually

pytestmark = pytest.mark.central

POLICIES_CRD = REPOSITORY / "manifests" / "crd" / "recoverypolicies.yaml"
BAD: Object = {"budget": {"window": "7d"}, "backoff": {"initial": "10m", "max": "5m"}}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def webhooks(installed: ControlPlane) -> AsyncIterator[Webhooks]:
    """Webhooks that are registered for this module, and removed afterwards."""
    claims = PortClaims()
    kubeconfig = await installed.kubeconfig_for_service_account(SYSTEM, "recovery-controller")
    registered = Webhooks(installed, kubeconfig, claims.claim())
    await registered.register()
    yield registered
    await installed.kubectl("delete", "validatingwebhookconfiguration", CONFIGURATION_NAME)
    await installed.kubectl("delete", "--all", "--all-namespaces", "recoverypolicies", "--ignore-not-found")
    claims.close()


@pytest_asyncio.fixture(loop_scope="session")
async def lenient_schema(webhooks: Webhooks) -> AsyncIterator[None]:
    """A CRD with the fields and without the rules. It accepts what one without CEL would accept."""
    strict = yaml.safe_load(POLICIES_CRD.read_text())
    in_full = policy("probe", **BAD)
    try:
        await _apply(webhooks.control_plane, _without_rules(strict))
        await eventually(lambda: _invalid(webhooks, in_full), "False")
        yield
    finally:
        await _apply(webhooks.control_plane, strict)
        await eventually(lambda: _invalid(webhooks, in_full), "True")


async def _invalid(webhooks: Webhooks, found: Object) -> bool:
    return "is invalid" in await webhooks.said(found)


async def _apply(control_plane: ControlPlane, *objects: Object, namespace: str | None = None) -> None:
    where = ("--namespace", namespace) if namespace else ()
    await control_plane.kubectl(
        "apply", "--server-side", "--force-conflicts", *where, "--filename=-", stdin=yaml.safe_dump_all(objects)
    )


def _without_rules(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {key: _without_rules(value) for key, value in schema.items() if key != "x-kubernetes-validations"}
    return [_without_rules(each) for each in schema] if isinstance(schema, list) else schema


# --- certificates --------------------------------------------------------------------------------------------------


async def test_replicas_that_start_at_once_agree_on_one_certificate_and_have_it_trusted(webhooks: Webhooks) -> None:
    claims = PortClaims()
    ports = (webhooks.port, claims.claim(), claims.claim())
    async with webhooks.served(*ports):
        served = [await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port)) for port in ports]
        configuration = await webhooks.get("validatingwebhookconfiguration", CONFIGURATION_NAME)
        secret = (await webhooks.get("--namespace", SYSTEM, "secret", SECRET_NAME))["data"]
        await webhooks.asked()
    claims.close()
    assert len(set(served)) == 1
    assert {each["clientConfig"]["caBundle"] for each in configuration["webhooks"]} == {secret["ca.crt"]}
    assert set(secret) == {"ca.crt", "tls.crt", "tls.key"}


async def test_applying_the_manifests_again_leaves_certificate_and_trust_alone(webhooks: Webhooks) -> None:
    async with webhooks.served():
        before = await webhooks.get("--namespace", SYSTEM, "secret", SECRET_NAME)
        await webhooks.register()
        after = await webhooks.get("--namespace", SYSTEM, "secret", SECRET_NAME)
        await webhooks.asked()
    assert before["data"] == after["data"]


# --- what users see ------------------------------------------------------------------------------------------------


async def test_good_ones_pass_without_a_word(webhooks: Webhooks, namespace: str) -> None:
    cluster_policy = {**policy("base"), "kind": "ClusterRecoveryPolicy"}
    async with webhooks.served():
        await webhooks.asked()
        assert await webhooks.said(policy(), cluster_policy, config(), namespace=namespace) == ""


async def test_what_will_not_be_as_written_is_warned_about(webhooks: Webhooks, namespace: str) -> None:
    async with webhooks.served():
        await webhooks.asked()
        await _apply(webhooks.control_plane, policy("first"), namespace=namespace)
        twin = policy("second", budget={"onExhausted": "FailJob"})
        told = await eventually(lambda: webhooks.said(twin, namespace=namespace), "the same selector")
        paused = await webhooks.said(config(paused=True, pauseReason="storage is down"))
    assert f"Warning: spec.priority: RecoveryPolicy {namespace}/first has the same selector" in told
    assert "Warning: spec.budget.onExhausted: FailJob is not allowed in this cluster" in told
    assert "Warning: spec.paused: RecoveryConfig default pauses all recoveries: storage is down" in paused


@pytest.mark.usefixtures("lenient_schema")
async def test_bad_ones_are_refused_with_every_field_and_fix_even_where_the_schema_would_not(
    webhooks: Webhooks, namespace: str
) -> None:
    async with webhooks.served():
        await webhooks.asked()
        told = await webhooks.said(policy(**BAD), namespace=namespace)
    assert 'admission webhook "recoverypolicies.recovery.trainjob.dev" denied the request: ' in told
    assert "spec.budget.window: '7d' is not a duration; write it like 24h, 15m, 10s or 500ms" in told
    assert "spec.backoff.max: 5m is shorter than spec.backoff.initial, 10m" in told


# --- without the webhooks ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("lenient_schema")
async def test_while_no_one_serves_everything_is_admitted_and_judged_later(webhooks: Webhooks, namespace: str) -> None:
    async with webhooks.served():
        await webhooks.asked()
    made = {"metadata": {"name": "good", "annotations": {"team": "a"}}}
    await _apply(webhooks.control_plane, {**policy(priority=1), **made}, policy("bad", **BAD), namespace=namespace)
    assert await webhooks.said(train_job("llm", ranks=2), namespace=namespace) == ""
    where = ("--namespace", namespace, "recoverypolicy")
    assert await webhooks.accepted(*where, "good") == {}
    async with webhooks.served():
        await eventually(lambda: webhooks.accepted(*where, "good"), "'status': 'True'")
        await eventually(lambda: webhooks.accepted(*where, "bad"), "'status': 'False'")
        # A bad policy can still be changed and deleted.
        await webhooks.control_plane.kubectl("label", *where, "bad", "team=a")
        await webhooks.control_plane.kubectl("delete", *where, "bad")
    found = await webhooks.get(*where, "good")
    assert found["metadata"]["annotations"] == {"team": "a"}
    assert "finalizers" not in found["metadata"]
    [status] = [each for each in found["metadata"]["managedFields"] if each.get("subresource") == "status"]
    assert set(status["fieldsV1"]) == {"f:status"}
    condition = found["status"]["conditions"][0]
    assert (condition["reason"], condition["observedGeneration"]) == ("Accepted", 1)


@pytest.mark.usefixtures("lenient_schema")
async def test_the_controller_serves_it_as_the_user_of_the_image_and_its_sudden_death_blocks_no_one(
    webhooks: Webhooks, namespace: str, tmp_path: Path
) -> None:
    options = ("--admission-address", f"127.0.0.1:{webhooks.port}")
    async with ControllerProcess.running(
        webhooks.kubeconfig, tmp_path / "log", options=options, in_container=True
    ) as controller:
        await eventually(lambda: ask(controller, "/readyz"), "200")
        await webhooks.asked()
        refused = await webhooks.said(policy(**BAD), namespace=namespace)
        assert 'admission webhook "recoverypolicies.recovery.trainjob.dev" denied the request: ' in refused
        assert "recovery_admission_up 1.0\n" in (await ask(controller, "/metrics"))[1]
        await controller.kill()
        assert await webhooks.said(policy(), train_job("llm", ranks=2), namespace=namespace) == ""
    async with ControllerProcess.running(webhooks.kubeconfig, tmp_path / "log2", options=options) as controller:
        assert await controller.end() == 0


async def test_a_replica_that_cannot_serve_leads_and_lives_and_says_why_it_is_not_ready(
    webhooks: Webhooks, tmp_path: Path
) -> None:
    nothing = tmp_path / "certificates"
    nothing.mkdir()
    options = ("--admission-address", f"127.0.0.1:{webhooks.port}", "--admission-certificates", str(nothing))
    async with ControllerProcess.running(webhooks.kubeconfig, tmp_path / "log", options=options) as controller:
        assert controller.leads()
        why = "not ready, waiting for: admission webhooks (FileNotFoundError: "
        await eventually(lambda: ask(controller, "/readyz"), f'(503, "{why}')
        assert str(nothing / "tls.crt") in (await ask(controller, "/readyz"))[1]
        assert await ask(controller, "/healthz") == (200, "ok\n")
        assert "recovery_admission_up 0.0\n" in (await ask(controller, "/metrics"))[1]
