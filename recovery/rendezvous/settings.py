"""The user's settings of the endpoint. They have their own module, so that reading options loads nothing else."""

import msgspec


class AgentSettings(msgspec.Struct, frozen=True):
    """Where agents are answered. `host` empty: all addresses. Port 0: the system chooses."""

    host: str
    port: int
