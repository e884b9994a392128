"""kubectl and HTTP probes as coroutines, for the start of the control plane and for tests."""

import asyncio
import ssl
from pathlib import Path

from tests.cluster.controlplane.processes import ControlPlaneError, die_with_parent

_PROBE_TIMEOUT_SECONDS = 2.0


class KubectlError(ControlPlaneError):
    """kubectl ended with an error. `stderr` is what it printed there."""

    def __init__(self, arguments: tuple[str, ...], exit_code: int, stderr: str) -> None:
        super().__init__(f"`kubectl {' '.join(arguments)}` failed ({exit_code}): {stderr.strip()}")
        self.stderr = stderr


async def run_kubectl(
    program: Path, environment: dict[str, str], arguments: tuple[str, ...], stdin: str | None, timeout_seconds: float
) -> str:
    """Returns what kubectl prints. A call that is cancelled or times out leaves no process behind."""
    process = await asyncio.create_subprocess_exec(
        str(program),
        *arguments,
        stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
        process_group=0,
        preexec_fn=die_with_parent(),
    )
    try:
        async with asyncio.timeout(timeout_seconds):
            stdout, stderr = await process.communicate(stdin.encode() if stdin is not None else None)
    except TimeoutError:
        raise ControlPlaneError(f"`kubectl {' '.join(arguments)}` had not ended after {timeout_seconds} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise KubectlError(arguments, process.returncode, stderr.decode(errors="replace"))
    return stdout.decode()


async def answers_ok(port: int, path: str, tls: ssl.SSLContext | None) -> bool:
    """Whether an HTTP GET on 127.0.0.1 is answered with 200."""
    try:
        async with asyncio.timeout(_PROBE_TIMEOUT_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
            try:
                writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
                status_line = await reader.readline()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False
    return status_line.split()[1:2] == [b"200"]
