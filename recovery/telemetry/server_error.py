"""A module of its own, so that a command that serves nothing does not load aiohttp's server half and the Prometheus
client."""


class ServerError(Exception):
    """The server cannot listen; the message is one line that names the address."""
