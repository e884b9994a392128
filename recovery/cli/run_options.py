"""The options of `recovery run` that say where else it listens."""

from pathlib import Path
from typing import Annotated

import typer

from recovery.cli.arguments import Address, parse_address

AdmissionAddress = Annotated[
    Address | None,
    typer.Option(parser=parse_address, metavar="HOST:PORT", help="Address of the admission webhooks. Default: none."),
]
AdmissionCertificates = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="With tls.crt and tls.key. Default: self-made, in Secret recovery-admission."),
]
AgentAddress = Annotated[
    Address | None,
    typer.Option(parser=parse_address, metavar="HOST:PORT", help="Address for the agents of jobs. Default: none."),
]
