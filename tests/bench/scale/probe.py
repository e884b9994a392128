"""Asks a controller for /healthz every 20 ms, in a process of its own: its answer waits for the event loop.

Writes a line for each answer: when it was requested in monotonic seconds, which all processes of a machine share, and
after how many seconds it was there.
"""

import socket
import sys
import time

_INTERVAL_SECONDS = 0.02
_REQUEST = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
_PATIENCE_SECONDS = 30.0


def _main(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), _PATIENCE_SECONDS) as connection:
        while True:
            began = time.monotonic()
            connection.sendall(_REQUEST)
            if not connection.recv(4096):
                return
            print(f"{began:.4f} {time.monotonic() - began:.4f}", flush=True)
            time.sleep(_INTERVAL_SECONDS)


if __name__ == "__main__":
    _main(int(sys.argv[1]))
