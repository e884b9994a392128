"""Both generators write their files, and name those that have drifted."""

from pathlib import Path

import pytest

from recovery.generated_files import GeneratedFiles

FILES = GeneratedFiles("python -m maker", "the code", {"docs/page.md": "page\n", "made/a.yaml": "a: 1\n"}, ("made/*",))


def test_what_is_written_has_not_drifted(tmp_path: Path) -> None:
    assert FILES.main([], tmp_path) == 0
    assert (tmp_path / "docs" / "page.md").read_text() == "page\n"
    assert (tmp_path / "made" / "a.yaml").read_text() == "a: 1\n"
    assert FILES.main(["--check"], tmp_path) == 0


def test_a_check_names_what_has_drifted_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    FILES.write(tmp_path)
    (tmp_path / "docs" / "page.md").write_text("changed by hand")
    (tmp_path / "made" / "a.yaml").unlink()
    (tmp_path / "made" / "strange.yaml").touch()
    (tmp_path / "docs" / "written_by_hand.md").touch()
    for _ in range(2):
        assert FILES.main(["--check"], tmp_path) == 1
        assert capsys.readouterr().err.splitlines() == [
            f"{path} is not what the code says; run `make manifests`, or remove it"
            for path in ("docs/page.md", "made/a.yaml", "made/strange.yaml")
        ]
