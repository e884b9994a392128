"""Our annotations that facts and their diagnosis read; those that a policy or a verb gives meaning to stand there."""

OWN_ANNOTATION_PREFIX = "recovery.trainjob.dev/"
"""Annotations that the controller or its users write; no others are read."""

TRAINING_CONTAINER_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}container"
"""On a pod template, or on the workload for all of its Jobs: the name of the container that trains."""


QUARANTINE_ANNOTATION = "recovery.trainjob.dev/quarantine"
"""On the node, beside the taint: `Mark` as JSON."""


RELEASE_ANNOTATION = "recovery.trainjob.dev/release"
"""On the node, set by a user (`recovery release`): an RFC 3339 time. A quarantine from before it ends."""


RESET_BREAKER_ANNOTATION = "recovery.trainjob.dev/reset-breaker"
"""On the RecoveryConfig, set by a user (`recovery reset-breaker`): an RFC 3339 time. A circuit breaker that opened
before it closes."""


POLICY_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}policy"
"""On the workload, set by a user: the name of the policy to use. A RecoveryPolicy of the namespace with that name goes
before a ClusterRecoveryPolicy."""


PAUSED_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}paused"
"""On the workload, set by a user (`recovery pause`): the controller does nothing about the job."""


SUSPENDED_BY_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}suspended-by"
"""On a workload that the controller has suspended: the id of the incident. A client that removes it takes over the
suspension: the controller never resumes what it did not suspend."""


RESUME_AT_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}resume-at"
"""Beside it, for people: the RFC 3339 time at which the suspension should end, or `never` if that is not known."""


RESTART_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}restart"
"""On the workload, set by a user: a request to recreate the group now, which is not charged to the budget. Its value is
an RFC 3339 time, or JSON with `at` and optionally `reason`, `by` and `force`. `status.requests` of the RecoveryGroup
has the answer."""


RETRY_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}retry"
"""On the workload, set by a user: a request to leave Held or Backoff now. Written as for `restart`."""


RESET_BUDGET_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}reset-budget"
"""On the workload, set by a user: a request to forget what has been charged to the budget. Written as for `restart`."""


JOINED_PROBE_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}joined-probe"
"""On the pod template of a prepared runtime: `readiness` says that a pod becomes Ready only when its rank has joined
all others. Ready then ends Rendezvous, and not only the start."""


KUEUE_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
"""On a workload that Kueue admits. Kueue owns its `spec.suspend`, so the controller does not suspend it."""


KUEUE_PATCH_MANAGER = "kueue.x-k8s.io/manager"
"""The manager of Kueue's entry in `spec.runtimePatches` of a TrainJob. It patches ReplicatedJobs once the job is
admitted, also one without a queue label (`manageJobsWithoutQueueName`)."""


TORN_DOWN_BY_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}torn-down-by"
"""On a living Job whose pods the controller deletes before the Job: the attempt that does so, because one attempt does
it once. From then on a pod of it that succeeds has been asked to go, and is no sign of a training that finishes."""


TOUCHED_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}touched"
"""On a Job that got no pods, set by the watchdog so that the Job controller reconciles it: the attempt for which
that was done, because one attempt touches once."""


BIRTH_SETTINGS_LABEL = f"{OWN_ANNOTATION_PREFIX}birth-settings"
"""On a RecoveryGroup, with the value `true`: its status has birth settings. The API server evaluates the admission
policy for each labelled RecoveryGroup of the namespace whenever a Job is created there, so no other carries it."""
BIRTH_SETTINGS_LABELLED = "true"


BIRTH_SETTINGS_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}birth-settings"
"""On a Job: the revision of the birth settings that it was created with."""


NODES_ANNOTATION = f"{OWN_ANNOTATION_PREFIX}nodes"
"""On a Job with a size of its own, and on its pods: how many nodes the group has. A launch that does not read
`PET_NNODES` reads it through the downward API."""


HOSTNAME_LABEL = "kubernetes.io/hostname"
"""On a node, by its kubelet: what a required node affinity names it by."""


SPARE_LABEL = f"{OWN_ANNOTATION_PREFIX}spare"
"""On a node, set by a user: the node is kept free for groups that have lost one. The value does not matter."""
