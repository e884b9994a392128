"""Options and arguments that several commands have."""

from typing import Annotated

import typer

from recovery.cli.arguments import parse_request_timeout
from recovery.cli.completion import job_names, namespaces, node_names

Kubeconfig = Annotated[
    str | None, typer.Option(metavar="FILE", help="Default: $KUBECONFIG, the pod's service account, ~/.kube/config.")
]
Context = Annotated[
    str | None, typer.Option(metavar="NAME", help="Context of the kubeconfig. Default: the current one.")
]
RequestTimeout = Annotated[
    float | None,
    typer.Option(
        parser=parse_request_timeout,
        metavar="DURATION",
        help="Time limit of a request to the API server, like 30s. 0: no limit. Default: 10s.",
        show_default=False,
    ),
]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NS",
        help="Default: the namespace of the context.",
        autocompletion=namespaces,
    ),
]
AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="In all namespaces.")]
Jobs = Annotated[
    list[str],
    typer.Argument(
        metavar="JOB", help="Names of TrainJobs or bare JobSets.", show_default=False, autocompletion=job_names
    ),
]
Nodes = Annotated[
    list[str],
    typer.Argument(metavar="NODE", help="Names of nodes.", show_default=False, autocompletion=node_names),
]
WaitSeconds = Annotated[
    float, typer.Option(min=0, metavar="SECONDS", help="How long to wait for the answer. 0: do not wait.")
]
