"""The progress that a training reports."""

from datetime import datetime

import msgspec


class Progress(msgspec.Struct, frozen=True):
    """The progress that the training reports: `TrainJob.status.trainerStatus` (Trainer 2.2, gate TrainJobStatus).

    The training process writes it through Trainer. Nothing resets it: after a restart it describes the earlier
    incarnation until the new one writes."""

    updated_at: datetime
    """`lastUpdatedTime`: when the training process wrote it, by the clock of its node, in whole seconds. A write that
    arrives late keeps its date."""
    ratio: float | None = None
    """`progressPercentage` as a fraction, from 0 to 1. None: the training does not know how much is left."""
