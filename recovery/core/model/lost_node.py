"""A node that a storm may have taken."""

from datetime import datetime

import msgspec


class LostNode(msgspec.Struct, frozen=True):
    """A node that stopped being Ready, or disappeared."""

    name: str
    since: datetime
    rack: str = ""
    """Value of the label that names its rack, or its top-of-rack switch. Empty: it has none. A zone is not a rack."""
