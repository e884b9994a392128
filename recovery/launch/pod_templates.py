"""Checks what Kubernetes does with a pod template that Trainer and JobSet accept.

The API server refuses a Job whose pods always restart (validateJobSpec in pkg/apis/batch/validation). The kubelet gives
a pod in the host network the resolver of its node (getPodDNSType in pkg/kubelet/network/dns).
"""

from collections.abc import Iterator

from recovery.launch.fields import is_placeholder
from recovery.launch.findings import Code, LintFinding, Severity
from recovery.launch.launch import Launch, Member
from recovery.launch.views import ReplicatedJob

RESTART_POLICY_REFUSED = Code("restart-policy-refused", Severity.ERROR, "a Job does not accept this restartPolicy")
HOST_NETWORK_DNS = Code(
    "host-network-dns", Severity.WARNING, "pods in the host's network do not find each other's names"
)
CODES = (RESTART_POLICY_REFUSED, HOST_NETWORK_DNS)

_OF_A_JOB = ("Never", "OnFailure")
_RESOLVER_OF_NODE = frozenset({"", "ClusterFirst", "Default"})


def check(launch: Launch) -> Iterator[LintFinding]:
    for job in launch.job_set.jobs:
        yield from _restart_policy(job)
    for member in launch.members:
        yield from _resolver(launch, member)


def is_refused(job: ReplicatedJob) -> bool:
    """Whether the API server refuses a Job with that restartPolicy."""
    policy = job.pods.restart_policy
    return bool(policy) and policy not in _OF_A_JOB and not is_placeholder(policy)


def _restart_policy(job: ReplicatedJob) -> Iterator[LintFinding]:
    if not is_refused(job):
        return
    policy = job.pods.restart_policy
    message = (
        f"restartPolicy {policy} of ReplicatedJob {job.name} is none that a Job may have: the API server refuses the "
        "Job, and no pod ever starts"
    )
    fix = "write restartPolicy: Never; a sidecar that is to restart goes to initContainers, with its own restartPolicy"
    if policy != "Always":
        fix = "write restartPolicy: Never or OnFailure"
    yield LintFinding(RESTART_POLICY_REFUSED, job.pods.place / "restartPolicy", message, fix)


def _resolver(launch: Launch, member: Member) -> Iterator[LintFinding]:
    """Checks a group, because its pods find each other by the names that JobSet gives them."""
    pods = member.template
    if not pods.host_network or pods.dns_policy not in _RESOLVER_OF_NODE or launch.nodes < 2:
        return
    policy = f"dnsPolicy {pods.dns_policy}" if pods.dns_policy else "dnsPolicy ClusterFirst (the default)"
    name = f"{launch.name}-{member.job.name}-0-0.{launch.job_set.subdomain or launch.name}"
    yield LintFinding(
        HOST_NETWORK_DNS,
        pods.place / ("dnsPolicy" if pods.dns_policy else "hostNetwork"),
        f"with hostNetwork the kubelet takes {policy} for the resolver of the node, which knows no names of the "
        f"cluster: {name} is not found, and the ranks do not meet",
        "set dnsPolicy: ClusterFirstWithHostNet in the pod template",
    )
