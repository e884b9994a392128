"""Runs in a pod of the controller's image: asks the API server once a second, through the controller's own session.

It prints a line of JSON for each request: when it was sent, and the error. An empty error means that it was answered.
"""

import asyncio
import json
from pathlib import Path

from recovery import api_verbs
from recovery.controller.clock import SystemClock
from recovery.kube.http import HttpTransport
from recovery.kube.session import open_session
from recovery.ports import PODS, ApiError

NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


async def main() -> None:
    clock = SystemClock()
    async with open_session() as session:
        api = HttpTransport(session, clock=clock)
        while True:
            wrong = ""
            try:
                await api_verbs.list_page(api, PODS, namespace=NAMESPACE.read_text(), limit=1)
            except ApiError as error:
                wrong = str(error)
            print(json.dumps({"at": clock.now().timestamp(), "wrong": wrong}), flush=True)
            await asyncio.sleep(1.0)


if __name__ == "__main__":
    asyncio.run(main())
