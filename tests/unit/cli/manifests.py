"""Manifests in files, and the findings that commands print about them."""

from pathlib import Path

import yaml
from typer.testing import CliRunner, Result

from recovery.cli.main import app
from tests.unit.cli.cluster import metadata
from tests.unit.fake_api import Object

BASES = Path(__file__).parents[1] / "launch" / "bases"
TORCH = (BASES / "torch.yaml").read_text()
"""A TrainJob at line 2, its numProcPerNode at line 15, and its ClusterTrainingRuntime. Nothing is wrong with them."""
JOB, RUNTIME = TORCH.split("---\n")
SEVEN = TORCH.replace("numProcPerNode: 8", "numProcPerNode: 7")
"""One warning, at line 15."""
WORD = TORCH.replace("numProcPerNode: 8", "numProcPerNode: gpu")
"""One error, at line 15."""


def recovery(*arguments: str, stdin: str | bytes = "", exit_code: int = 0) -> Result:
    result = CliRunner().invoke(app, arguments, input=stdin)
    assert result.exit_code == exit_code, result.output
    assert "Traceback" not in result.output
    return result


def told(text: str) -> list[str]:
    """The findings of a text, each as a line with its fix in parentheses."""
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("    fix: "):
            lines[-1] += f" ({line.removeprefix('    fix: ')})"
        else:
            lines.append(line)
    return lines


def written_to(path: Path, text: str | bytes = TORCH) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def runtime_object(name: str = "torch-prepared", namespace: str = "") -> Object:
    """The runtime as the API server returns it. `namespace` empty: a ClusterTrainingRuntime."""
    found: Object = yaml.safe_load(RUNTIME)
    found["metadata"] = metadata(name, namespace, "uid-1") | {"managedFields": [{"manager": "kubectl"}]}
    found["kind"] = "TrainingRuntime" if namespace else "ClusterTrainingRuntime"
    return found
