"""Apart from `server`, so that a command that serves nothing does not load what serves: aiohttp's half for servers, and
Prometheus' client."""


class ServerError(Exception):
    """The server cannot listen; the message is one line that names the address."""
