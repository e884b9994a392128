"""`python -m tests.prometheus.pictures`: draws both dashboards on the recording into docs/images."""

import tempfile
from pathlib import Path

from recovery.generated_files import REPOSITORY
from tests.cluster.controlplane.build import MONITORING, provide
from tests.prometheus.board_queries import BOARDS, Viewed
from tests.prometheus.drawing import draw
from tests.prometheus.laid import lay
from tests.prometheus.scenario import record

CHOSEN = {"fleet": {}, "job": {"namespace": "team-a", "job_name": "llm"}}


def main() -> None:
    recording = record()
    toolbox = provide(print, MONITORING)
    programs = {"prometheus": toolbox.binary("prometheus"), "promtool": toolbox.binary("promtool")}
    with tempfile.TemporaryDirectory(prefix="recovery-pictures-") as folder:
        laid = lay(recording, **programs, folder=Path(folder), honors_labels=True)
        with laid.served() as server:
            for board in BOARDS:
                view = Viewed(recording.evidence.began_at, recording.ends_at, CHOSEN[board])
                (REPOSITORY / f"docs/images/dashboard-{board}.svg").write_text(draw(board, server, view))


if __name__ == "__main__":
    main()
