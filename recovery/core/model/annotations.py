"""The annotations and labels that the controller reads and writes. Their docstrings go into docs/reference.md."""

OWN_ANNOTATION_PREFIX = "recovery.trainjob.dev/"
"""The prefix of the annotations that the controller or its users write. Facts of workloads and nodes contain no
others."""

TRAINING_CONTAINER_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}container"
"""On a pod template, or on the workload for all of its Jobs: the name of the container that trains."""


COLLECTIVE_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}collective"
"""On the workload, or on a pod template for all jobs of a runtime: what the end of one rank means for the others.
`Required`: they hang. `SelfHealing`: they notice it within their own timeout, and go on with a new rank or without it.
`Independent`: they go on. The workload takes precedence. Without the annotation the launch decides: its command and
its variables."""


QUARANTINE_ANNOTATION = "recovery.trainjob.dev/quarantine"
"""On a quarantined node, in addition to the taint: why and since when it is quarantined, as JSON."""


RELEASE_ANNOTATION = "recovery.trainjob.dev/release"
"""On a node, set by a user (`recovery release`): an RFC 3339 time. It ends a quarantine that began before that time."""


RESET_BREAKER_ANNOTATION = "recovery.trainjob.dev/reset-breaker"
"""On the RecoveryConfig, set by a user (`recovery reset-breaker`): an RFC 3339 time. It closes a circuit breaker
that opened before that time."""


POLICY_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}policy"
"""On the workload, set by a user: the name of the policy to use. A RecoveryPolicy of the namespace with that name takes
precedence over a ClusterRecoveryPolicy."""


PAUSED_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}paused"
"""On the workload, set by a user (`recovery pause`): the controller takes no action on the job."""


SUSPENDED_BY_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}suspended-by"
"""On a workload that the controller has suspended: the id of the incident. A client that removes it takes over the
suspension: the controller never resumes what it did not suspend."""


RESUME_AT_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}resume-at"
"""On a workload that the controller has suspended, for people: the RFC 3339 time at which the suspension should end, or
`never` if that time is not known."""


RESTART_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}restart"
"""On the workload, set by a user: a request to recreate the group now, which is not charged to the budget. The value is
an RFC 3339 time, or JSON with `at` and optionally `reason`, `by` and `force`. The answer is in `status.requests` of the
RecoveryGroup."""


RETRY_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}retry"
"""On the workload, set by a user: a request to leave phase Held or Backoff now. The value has the format of
`recovery.trainjob.dev/restart`."""


RESET_BUDGET_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}reset-budget"
"""On the workload, set by a user: a request to forget what has been charged to the budget. The value has the format of
`recovery.trainjob.dev/restart`."""


JOINED_PROBE_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}joined-probe"
"""On the pod template of a prepared runtime: `readiness` means that a pod becomes Ready only when its rank has joined
all others. Ready pods then end phase Rendezvous, not only phase Starting."""


KUEUE_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
"""On a workload that Kueue admits. Kueue owns its `spec.suspend`, so the controller does not suspend it."""


KUEUE_PATCH_MANAGER = "kueue.x-k8s.io/manager"
"""The manager of Kueue's entry in `spec.runtimePatches` of a TrainJob. The entry patches ReplicatedJobs once the job is
admitted, even a job without a queue label (`manageJobsWithoutQueueName`)."""


STATE_TAINTS = "node.kubernetes.io/"
"""Prefix of the taints for the present state of a node: not-ready, unreachable, unschedulable, disk-pressure."""


NVSENTINEL_CORDON_ANNOTATION = "quarantineHealthEventIsCordoned"
"""On a node that NVSentinel has cordoned, also if it was cordoned before. Its value is then `True`."""


TORN_DOWN_BY_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}torn-down-by"
"""On a Job whose pods the controller deletes before it deletes the Job: the attempt that does so. Each attempt does it
once. A pod that succeeds after that was asked to terminate, so it does not show that the training is finishing."""


OWN_BACKOFF_LIMIT_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}own-backoff-limit"
"""On a Job whose `backoffLimit` the controller has raised while ranks wait for a node: the limit that its user gave it.
The exits of the ranks that wait do not use it up."""


TOUCHED_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}touched"
"""On a Job that got no pods, set by the watchdog so that the Job controller reconciles it: the attempt for which it was
set. Each attempt sets it once."""


BIRTH_SETTINGS_LABEL = f"{OWN_ANNOTATION_PREFIX}birth-settings"
"""On a RecoveryGroup, with the value `true`: its status has birth settings. The API server evaluates the admission
policy for each labelled RecoveryGroup of the namespace whenever a Job is created there, so no others have the label."""
BIRTH_SETTINGS_LABELLED = "true"


BIRTH_SETTINGS_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}birth-settings"
"""On a Job: the revision of the birth settings with which it was created."""


NODES_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}nodes"
"""On a Job whose size the birth settings set, and on its pods: how many nodes the group has. A launch command that does
not read `PET_NNODES` reads this through the downward API."""


HOSTNAME_LABEL = "kubernetes.io/hostname"
"""On a node, set by its kubelet: the host name by which a required node affinity selects the node."""


SPARE_LABEL = f"{OWN_ANNOTATION_PREFIX}spare"
"""On a node, set by a user: the node is kept free for groups that have lost a node. The value does not matter."""
