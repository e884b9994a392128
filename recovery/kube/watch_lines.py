"""A watch stream as bytes: lines out of chunks, and the envelope of each line.

Lines are split by hand because aiohttp's own reader refuses lines longer than its buffer, and an object may hold up to
1.5 MB. The envelope leaves the object as it came, so that a bookmark or an error is never decoded as a pod.
"""

from collections.abc import AsyncIterator

import msgspec

WATCH_IDLE_SECONDS_MAX = 150.0
"""A watch that has said nothing for so long counts as broken, though its connection stands.

An API server sends each watch a bookmark about once a minute, also where nothing changes (`defaultBookmarkFrequency`
and `dispatchEvents` in `pkg/storage/cacher/cacher.go` of k8s.io/apiserver): two of them and more are missing by then.
Not every server does: one without a watch cache sends none, and one older than Kubernetes 1.34 (where this was read)
may send none after its start until something changes. So a list follows the silence, and says what is true.
"""


async def split_lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Each line without its newline, in time linear in its length. What follows the last newline was cut off."""
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
