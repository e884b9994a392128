"""Splits the bytes of a watch stream into lines, and decodes the envelope of each line.

Lines are split by hand because aiohttp's own reader refuses lines longer than its buffer, and an object may have up to
1.5 MB. The envelope leaves the object undecoded, so that a bookmark or an error is never decoded as a pod.
"""

from collections.abc import AsyncIterator

import msgspec

WATCH_IDLE_SECONDS_MAX = 150.0
"""A watch that is silent for this long counts as broken, even if its connection is up.

An API server sends each watch a bookmark about once a minute, even if nothing changes (`defaultBookmarkFrequency` and
`dispatchEvents` in `pkg/storage/cacher/cacher.go` of k8s.io/apiserver), so by then at least two are missing. Not every
server does: without a watch cache it sends none, and a server older than Kubernetes 1.34 (where this was read) may send
none after its start until something changes. So the silence alone proves nothing, and a list follows it.
"""


async def split_lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Each line without its newline, in time linear in its length. An incomplete last line is dropped."""
    begun: list[bytes] = []
    async for chunk in chunks:
        first, *rest = chunk.split(b"\n")
        begun.append(first)
        if not rest:
            continue
        yield b"".join(begun)
        begun = [rest.pop()]
        for line in rest:
            yield line


class WatchEvent(msgspec.Struct, frozen=True):
    """One line of a watch: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR, and the object undecoded."""

    type: str
    object: msgspec.Raw


decode_event = msgspec.json.Decoder(WatchEvent).decode
