"""The real clock."""

import asyncio
import time
from datetime import UTC, datetime


class SystemClock:
    """`ports.Clock` over the machine's clocks."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic_seconds(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
