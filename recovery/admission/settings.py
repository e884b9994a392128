"""The user's settings of admission. They have their own module, so that reading options does not load kopf."""

from pathlib import Path

import msgspec


class AdmissionSettings(msgspec.Struct, frozen=True):
    """Where the webhooks are served, and with which certificate."""

    host: str
    port: int
    certificates: Path | None = None
    """Folder with `tls.crt` and `tls.key`. None: we make our own certificate and keep it in a Secret."""
