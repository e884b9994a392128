"""One watch for the pods of all nodes.

If each of a hundred nodes watched its own pods, the API server would have to serve a hundred streams. The selector
excludes unbound pods. A stream that ends is resumed where it stopped. If that resourceVersion is too old for the
server, a list shows what changed meanwhile, including deletions, so no pod is ever lost.
"""

from collections.abc import Callable, Iterable

import msgspec

from recovery import api_verbs
from recovery.ports import PODS, ApiClient, Clock, ExpiredError, ReadAgainError, TryLaterError
from recovery.sim.kubelets.objects import Pod, PodEvent, PodList, PodWatchBookmark

BOUND_ONLY = "spec.nodeName!="
PAGE_LIMIT = 500
FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 5.0


class PodWatch:
    """The bound pods as the API server last reported them, by UID."""

    def __init__(
        self, api: ApiClient, clock: Clock, changed: Callable[[Pod], None], gone: Callable[[Pod], None]
    ) -> None:
        self._api = api
        self._clock = clock
        self._changed = changed
        self._gone = gone
        self._pods: dict[str, Pod] = {}
        self._version = ""
        """The resourceVersion to continue from. Empty: list first."""
        self._pause_seconds = FIRST_PAUSE_SECONDS
        self._decode_event = msgspec.json.Decoder(PodEvent).decode
        self._decode_pod = msgspec.json.Decoder(Pod).decode

    def on_node(self, node: str) -> Iterable[Pod]:
        return [pod for pod in self._pods.values() if pod.spec.node_name == node]

    async def run(self) -> None:
        """Watch until cancelled. Raises only `RefusedError`."""
        while True:
            asked_seconds = 0.0
            try:
                if not self._version:
                    await self._list()
                await self._follow()
            except TryLaterError as error:
                asked_seconds = error.retry_after_seconds or 0.0
            except ReadAgainError:
                self._version = ""
            await self._clock.sleep(max(self._pause_seconds, asked_seconds))
            self._pause_seconds = min(2 * self._pause_seconds, LONGEST_PAUSE_SECONDS)

    async def _list(self) -> None:
        listed: dict[str, Pod] = {}
        next_page = ""
        while True:
            body = await api_verbs.list_page(
                self._api, PODS, field_selector=BOUND_ONLY, limit=PAGE_LIMIT, continue_token=next_page
            )
            page = msgspec.json.decode(body, type=PodList)
            listed |= {pod.uid: pod for pod in page.items}
            next_page = page.metadata.next_page
            if not next_page:
                break
        for pod in [pod for uid, pod in self._pods.items() if uid not in listed]:
            self._forget(pod)
        for pod in listed.values():
            self._learn(pod)
        self._version = page.metadata.resource_version

    async def _follow(self) -> None:
        async for line in api_verbs.watch(self._api, PODS, field_selector=BOUND_ONLY, resource_version=self._version):
            event = self._decode_event(line)
            match event.type:
                case "ERROR":
                    raise ExpiredError("the watch ended with an error: list again", status=410)
                case "BOOKMARK":
                    metadata = msgspec.json.decode(event.object, type=PodWatchBookmark).metadata
                case _:
                    pod = self._decode_pod(event.object)
                    metadata = pod.metadata
                    handle = self._forget if event.type == "DELETED" else self._learn
                    handle(pod)
            self._version = metadata.resource_version
            self._pause_seconds = FIRST_PAUSE_SECONDS

    def _learn(self, pod: Pod) -> None:
        self._pods[pod.uid] = pod
        self._changed(pod)

    def _forget(self, pod: Pod) -> None:
        self._pods.pop(pod.uid, None)
        self._gone(pod)
