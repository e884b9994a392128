"""Runs inside the image, as `python -c`: serves the webhooks, has a bad policy reviewed, and prints the answer.

The input is JSON: the address of an API server, and the request of an AdmissionReview.
"""

import asyncio
import json
import random
import ssl
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import aiohttp

from recovery.admission.certificates import Certificates, make_certificates
from recovery.admission.serve import ClusterAccess, serve_admission
from recovery.admission.settings import AdmissionSettings
from recovery.controller.clock import SystemClock

UP_SECONDS = 60


async def main() -> None:
    given = json.load(sys.stdin)
    folder = Path(tempfile.mkdtemp())
    made = make_certificates(["127.0.0.1"], datetime.now(UTC), Certificates())
    (folder / "tls.crt").write_bytes(made.serving)
    (folder / "tls.key").write_bytes(made.key)
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "current-context": "tests",
                "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests"}}],
                "clusters": [{"name": "tests", "cluster": {"server": given["url"]}}],
                "users": [{"name": "tests", "user": {"token": "secret"}}],
            }
        )
    )
    settings = AdmissionSettings("127.0.0.1", given["port"], folder)
    cluster = ClusterAccess("recovery-system", str(kubeconfig))
    async with serve_admission(settings, cluster, SystemClock(), random.Random(1)) as admission:
        async with asyncio.timeout(UP_SECONDS):
            while not admission.up:
                await asyncio.sleep(0.02)
        url = f"https://127.0.0.1:{given['port']}/{given['request']['resource']['resource']}"
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": given["request"]}
        trusting = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=made.authorities.decode()))
        async with aiohttp.ClientSession(connector=trusting) as session, session.post(url, json=review) as response:
            print(json.dumps((await response.json())["response"]))


if __name__ == "__main__":
    asyncio.run(main())
