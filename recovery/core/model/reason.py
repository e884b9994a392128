"""Why something is decided: a code for programs, and the details from which a sentence for people is rendered.

`Reason` is one CamelCase word, as in conditions and Events of Kubernetes. Metrics, alerts and tests compare it.
`core.sentences` renders the message, which only people read.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum, auto
from functools import reduce
from typing import TypeAlias

import msgspec


class Reason(StrEnum):
    """The codes, in the order of a decision. A code never changes its meaning. New codes may be added at any time."""

    UNKNOWN = "Unknown"
    """A newer version of the controller wrote the reason. The message describes it."""

    # --- not managed, or nothing to do --------------------------------------------------------------------------
    WORKLOAD_GONE = "WorkloadGone"
    """The TrainJob, or the bare JobSet, does not exist."""
    UNDECODABLE = "Undecodable"
    """An object of the group cannot be read, so nothing is done about the group."""
    STALE_FACTS = "StaleFacts"
    """The watch of a resource is silent, so nothing new begins on the basis of its cached objects."""
    NO_POLICY = "NoPolicy"
    """No RecoveryPolicy selects the job."""
    POLICY_INVALID = "PolicyInvalid"
    """The RecoveryPolicy that applies cannot be used."""
    POLICY_GONE = "PolicyGone"
    """The policy of an open incident was deleted, or no longer selects the job."""
    JOB_PAUSED = "JobPaused"
    """A person paused the job with the annotation."""
    GLOBAL_PAUSE = "GlobalPause"
    """RecoveryConfig pauses the whole cluster, or cannot be read."""
    OBSERVE_MODE = "ObserveMode"
    """The policy is in mode Observe: the controller only says what it would do."""
    BREAKER_OPEN = "BreakerOpen"
    """The circuit breaker is open, so every policy counts as mode Observe."""
    JOB_DELETED = "JobDeleted"
    """The workload is being deleted."""
    JOB_COMPLETE = "JobComplete"
    """The workload, or its JobSet, is complete."""
    JOB_SUSPENDED = "JobSuspended"
    """A user or Kueue has suspended the workload, or its JobSet is suspended."""
    JOB_FINISHING = "JobFinishing"
    """The training is about to complete, and a restart would discard its result."""
    NO_JOB_SET = "NoJobSet"
    """The workload has no JobSet."""
    JOB_SET_DELETED = "JobSetDeleted"
    """The JobSet is being deleted."""
    JOB_SET_REPLACED = "JobSetReplaced"
    """Another JobSet replaced the one of the incident."""
    JOB_SET_FAILED = "JobSetFailed"
    """The JobSet is Failed, and nothing is left to report or to do."""
    NO_JOB = "NoJob"
    """There is no Job to restart."""
    NO_FAILURE = "NoFailure"
    """Nothing has failed."""
    BASELINE = "Baseline"
    """A loss from before the policy enforced, or from long ago, whose rank runs again: nothing is done."""
    NOT_STARTED = "NotStarted"
    """Not all ranks have run yet, and something keeps the group from starting."""
    NODE_SILENT = "NodeSilent"
    """A node of the group does not answer. It is not known yet whether its pods are lost."""
    RANKS_HANG = "RanksHang"
    """A rank ended, and the others that had met it hang."""
    STILL_BROKEN = "StillBroken"
    """Ranks hang since an incident that has closed, and only a person restarts them."""
    SUSPENSION_OVER = "SuspensionOver"
    """A suspension by the controller remains from an incident that has ended, so the workload is resumed."""
    INCIDENT_RECORDED = "IncidentRecorded"
    """A closed incident is written as a RecoveryIncident."""

    # --- what opened it, or arrived later -----------------------------------------------------------------------------
    MEMBER_LOST = "MemberLost"
    """A member of the group was lost."""
    MEMBER_LOST_AGAIN = "MemberLostAgain"
    """A member was lost again before the incident was over."""
    MEMBER_REPLACED = "MemberReplaced"
    """A member was lost before all ranks ran. Its Job replaces it, and no restart is needed."""
    MEMBERS_RUN_AGAIN = "MembersRunAgain"
    """The condition that opened the incident is over, and all ranks run."""

    # --- what the program is ------------------------------------------------------------------------------------------
    COLLECTIVE_ANNOTATED = "CollectiveAnnotated"
    """The annotation says whether the ranks of the program form one collective."""
    COLLECTIVE_UNKNOWN = "CollectiveUnknown"
    """The annotation has none of its values, so the program counts as Required."""
    COLLECTIVE_BY_LAUNCH = "CollectiveByLaunch"
    """The launch of the training container shows what the program is."""
    COLLECTIVE_ASSUMED = "CollectiveAssumed"
    """Nothing says what the program is, so it counts as Required."""

    # --- who else decides ---------------------------------------------------------------------------------------------
    POD_FAILURE_POLICY = "PodFailurePolicy"
    """A rule of the Job's podFailurePolicy decides on the failure (KEP-3329)."""
    JOB_FAILS_BY_ITS_SPEC = "JobFailsByItsSpec"
    """The Job fails for a reason that only its own spec can cause, for example a deadline."""
    MAX_RESTARTS = "MaxRestarts"
    """The JobSet's failurePolicy allows no more restarts."""
    CRASH_LOOP = "CrashLoop"
    """The group fails again and again, and others restart it more often than the budget allows the controller to."""
    FAILURE_POLICY = "FailurePolicy"
    """The JobSet's failurePolicy decides on the failing Job (KEP-262)."""
    BACKOFF_LIMIT_ZERO = "BackoffLimitZero"
    """The Job has backoffLimit 0: it fails with its first pod."""
    INDEX_FAILED = "IndexFailed"
    """The Job gives up an index by its backoffLimitPerIndex (KEP-3850)."""
    TRAINED_TO_THE_END = "TrainedToTheEnd"
    """The training container of the lost pod had exited with 0, so its Job decides what that means."""
    PLATFORM_RESTART = "PlatformRestart"
    """JobSet or another client restarts the group. The controller adopts that restart as the action of the incident."""
    PLATFORM_GAVE_UP = "PlatformGaveUp"
    """The JobSet is Failed because nothing was left to restart it."""
    TRAINER_RESUMES = "TrainerResumes"
    """The TrainJob is resumed, but its JobSet is not yet: the controller waits for Trainer."""

    # --- verdicts -----------------------------------------------------------------------------------------------------
    RESTART_NONE = "RestartNone"
    """The policy says `restart: None`."""
    DEFAULT_RESTART = "DefaultRestart"
    """No rule matches, so `restart` of the policy applies."""
    RULE_RECREATE_GROUP = "RuleRecreateGroup"
    """A rule says RecreateGroup."""
    RULE_REPLACE_NODE = "RuleReplaceNode"
    """A rule says ReplaceNode."""
    RULE_AVOID_NODE = "RuleAvoidNode"
    """A rule says AvoidNode."""
    RULE_SHRINK = "RuleShrink"
    """A rule says Shrink: the group is recreated, with fewer nodes at once if not all pods find one."""
    RULE_RESTART_IN_PLACE = "RuleRestartInPlace"
    """A rule says RestartInPlace."""
    RULE_FAIL_JOB = "RuleFailJob"
    """A rule says FailJob, and RecoveryConfig allows it."""
    RULE_FAIL_JOB_NOT_ALLOWED = "RuleFailJobNotAllowed"
    """A rule says FailJob, and RecoveryConfig does not allow it: the group is held."""
    RULE_IGNORE = "RuleIgnore"
    """A rule says Ignore, so the failure is left to Kubernetes."""
    NODE_PROVEN = "NodeProven"
    """The failure proves a fault of the node, so the node is replaced."""
    NODE_SUSPECTED = "NodeSuspected"
    """Enough incidents suspect the node, so it is replaced."""
    NODE_SUSPECTED_TWICE = "NodeSuspectedTwice"
    """The node is the suspect of this incident for the second time, so it is replaced."""
    NODE_REFUSES_PODS = "NodeRefusesPods"
    """The kubelet of the node has refused several pods of the group, so the group avoids the node for a while."""
    SAME_ERROR_AGAIN = "SameErrorAgain"
    """The same error recurs early on any node: a restart does not help."""
    USER_RESIZED = "UserResized"
    """A user has resized a Job, and a restart would restore the size in the template of its JobSet."""
    FINISH_OVERDUE = "FinishOverdue"
    """The training was finishing when a member was lost, and it has not ended within `timeouts.finish`."""
    BAD_CHECKPOINT = "BadCheckpoint"
    """The same error recurs at the same training step, so the checkpoint is suspected."""
    SETTLING = "Settling"
    """Late evidence may still change the decision of the rules, so the verdict waits for `settle`."""
    STORM = "Storm"
    """Nodes are being lost right now. The restart waits until no more are lost."""
    GROUP_PENDING = "GroupPending"
    """RecreateGroupAfterStart: a pod is Pending, so the restart waits until the group has started."""
    ENFORCED_TOO_LATE = "EnforcedTooLate"
    """The loss dates from before the policy was in mode Enforce, so it is left to a person."""
    MODE_SWITCHED = "ModeSwitched"
    """The policy was switched to Enforce, or the breaker closed, and another member has been lost since."""

    # --- why a node is not quarantined --------------------------------------------------------------------------------
    QUARANTINE_CAP = "QuarantineCap"
    """The number of quarantined nodes has reached the limit of RecoveryConfig."""
    QUARANTINE_NOT_ALLOWED = "QuarantineNotAllowed"
    """RecoveryConfig does not allow quarantine."""
    QUARANTINE_LAST_NODES = "QuarantineLastNodes"
    """The node is among the last on which a group can run."""
    FEASIBLE_NODES_UNKNOWN = "FeasibleNodesUnknown"
    """It is not known yet on which other nodes the group, or a group that waits, could run."""
    QUARANTINE_NAMESPACE_CAP = "QuarantineNamespaceCap"
    """Jobs of the namespace have caused as many quarantines as one namespace may without a sign of the node."""
    MESSAGE_UNCONFIRMED = "MessageUnconfirmed"
    """Only messages of one namespace blame the node, and no sign of the node confirms them."""
    NODE_UNKNOWN = "NodeUnknown"
    """No node is known for the failure."""

    # --- the size of an elastic group, and birth settings -------------------------------------------------------------
    NODE_NOT_AVOIDED = "NodeNotAvoided"
    """The group cannot avoid the node."""
    AVOIDANCE_ENDED = "AvoidanceEnded"
    """Pods of the group find no node while it avoids some, so it no longer avoids any."""
    NODES_NOT_REPLACED = "NodesNotReplaced"
    """Lost nodes were not replaced in time, so the group continues with fewer."""
    BELOW_MIN_NODES = "BelowMinNodes"
    """Fewer nodes are left than the smallest allowed size needs, so the group waits for capacity."""
    ROOM_AGAIN = "RoomAgain"
    """There has been room for more nodes for long enough, so the group grows."""
    WAITING_FOR_ROOM = "WaitingForRoom"
    """The group runs with fewer nodes than wanted, and waits for room to grow."""
    GROWTH_UNDONE = "GrowthUndone"
    """Not all nodes of a growth were available, so the group returns to a smaller size."""
    SIZE_FIXED = "SizeFixed"
    """The size of the group cannot be changed."""
    INDEX_SUCCEEDED = "IndexSucceeded"
    """A member has already succeeded, so a different size would end the Job or lose the result of that member."""
    TRYING_BIRTH_SETTINGS = "TryingBirthSettings"
    """A dry run is in progress that shows whether the Job can be created with its birth settings."""
    BIRTH_SETTINGS_REFUSED = "BirthSettingsRefused"
    """The API server refuses the Job with its birth settings, so they are withdrawn."""
    BIRTH_SETTINGS_NOT_APPLIED = "BirthSettingsNotApplied"
    """The API server creates the Job without its birth settings: the component is not installed."""
    BIRTH_SETTINGS_OVERRULED = "BirthSettingsOverruled"
    """JobSet undoes the size in the birth settings: its feature gate ElasticJobSet is on."""

    # --- restarts in place --------------------------------------------------------------------------------------------
    RESTARTED_ALONE = "RestartedAlone"
    """The agents restarted the processes by the permission that an earlier answer gave them."""
    AGENTS_DO_NOT_ASK = "AgentsDoNotAsk"
    """No agent asks about the process that ended, or the policy does not enable restarts in place."""
    MORE_THAN_A_PROCESS = "MoreThanAProcess"
    """More than a process was lost, or an agent does not answer."""
    RESTARTED_ALREADY = "RestartedAlready"
    """The incident has a restart already."""
    IN_PLACE_IN_A_ROW = "InPlaceInARow"
    """As many restarts in place followed one another as the policy allows."""
    SAME_ERROR_IN_PLACE = "SameErrorInPlace"
    """The same error, at the same step if that is known, has led to a restart before."""
    WAITING_FOR_AGENTS = "WaitingForAgents"
    """The agents have not reported since the restart in place was decided."""
    AGENTS_GAVE_UP = "AgentsGaveUp"
    """The agents could not start the processes again, so the group is recreated."""
    IN_PLACE_TIMEOUT = "InPlaceTimeout"
    """Not all processes ran within `timeouts.inPlace`, so the group is recreated."""
    AGENT_BLOCKS_START = "AgentBlocksStart"
    """The agent keeps a pod from starting, so the group is recreated without it."""

    # --- why no attempt may be made -----------------------------------------------------------------------------------
    BUDGET_EXHAUSTED = "BudgetExhausted"
    """The budget of the policy is used up within its window."""
    ATTEMPTS_EXHAUSTED = "AttemptsExhausted"
    """The incident has used all the attempts that it may make."""
    FAILING_JOB_SET = "FailingJobSet"
    """The controller is failing the JobSet."""

    # --- on the way back ----------------------------------------------------------------------------------------------
    FENCING = "Fencing"
    """An old pod may still run on a node that does not answer."""
    WAITING_FOR_TEARDOWN = "WaitingForTeardown"
    """Old pods, or old Jobs, are still there."""
    WAITING_FOR_RESUME = "WaitingForResume"
    """The workload is resumed, but Trainer or JobSet has not acted on it yet."""
    WAITING_FOR_PODS = "WaitingForPods"
    """JobSet, or the Job controller, has not created all Jobs and pods yet."""
    PODS_REFUSED = "PodsRefused"
    """The API server refuses the pods of the Job, for example because of a quota or a webhook."""
    WAITING_FOR_CAPACITY = "WaitingForCapacity"
    """The scheduler finds no node for a pod."""
    WAITS_FOR_EACH_OTHER = "WaitsForEachOther"
    """The same, for long, while other groups that wait too hold nodes that would take the pod."""
    RELEASED = "Released"
    """The job is suspended because a pod finds no node, so that others can have its GPUs."""
    WAITING_FOR_START = "WaitingForStart"
    """All pods have a node, but something keeps a container from starting."""
    WAITING_FOR_READY = "WaitingForReady"
    """All ranks run, but not all of them are Ready."""
    WAITING_FOR_PROGRESS = "WaitingForProgress"
    """All ranks are Ready, but the training has reported no progress since."""
    WAITING_FOR_JOB_SET = "WaitingForJobSet"
    """Trainer has not created the JobSet again yet."""
    JOB_BACKS_OFF = "JobBacksOff"
    """A Job whose pods were deleted before the ranks met creates the next ones too late, so it is created again."""
    JOB_WITHOUT_PODS = "JobWithoutPods"
    """The new Job got no pods for too long, so another attempt is made."""
    START_TIMEOUT = "StartTimeout"
    """Not all ranks ran within `timeouts.start`, so another attempt is made."""
    RENDEZVOUS_TIMEOUT = "RendezvousTimeout"
    """Not all ranks joined within `timeouts.rendezvous`, so another attempt is made."""
    BUDGET_WINDOW_PASSED = "BudgetWindowPassed"
    """The budget's window allows the next attempt of a held group."""
    NODE_SWALLOWS_PODS = "NodeSwallowsPods"
    """Every pod that is placed on the node fails or never starts, while other pods run elsewhere."""
    API_REFUSES = "ApiRefuses"
    """The API server refuses the action that was decided, for example because of a permission or a webhook."""
    SUSPENSION_RELEASED = "SuspensionReleased"
    """A suspension by the controller ends, because the controller may no longer act on the job."""
    RESUMED_BY_OTHERS = "ResumedByOthers"
    """Another client has ended a suspension by the controller."""
    NOT_SUSPENDED_IN_TIME = "NotSuspendedInTime"
    """The new group was starting before it could be suspended."""

    # --- why no suspension, and why the restart cannot wait -----------------------------------------------------------
    KUEUE = "Kueue"
    """Kueue manages the job, and owns its suspension and its quota."""
    DEADLINE = "Deadline"
    """A suspension would reset the deadline of the TrainJob or of the JobSet."""
    JOB_FAILING = "JobFailing"
    """A Job of the group is failing."""
    BACKOFF_LIMIT = "BackoffLimit"
    """A Job would not survive one more exit of every rank, or that is not known."""
    TIME_TO_START = "TimeToStart"
    """The group has already had its time to start."""

    # --- how an incident ended ----------------------------------------------------------------------------------------
    ALL_RANKS_READY = "AllRanksReady"
    """After a restart all ranks are Ready, or have joined."""
    TRAINING_PROGRESSES = "TrainingProgresses"
    """After a restart all ranks are Ready, and the training has reported progress since."""
    PROGRESS_NOT_SEEN = "ProgressNotSeen"
    """After a restart all ranks are Ready, but the training reported no progress within `timeouts.resume`."""
    RUNS_WHOLE_AGAIN = "RunsWholeAgain"
    """All ranks are Ready again without the restart that was due."""
    LEFT_TO_KUBERNETES = "LeftToKubernetes"
    """All ranks are Ready again without an action of the controller."""
    NATIVE_POLICY = "NativePolicy"
    """The JobSet failed because the user's own policies decided so."""
    FAIL_JOB_RULE = "FailJobRule"
    """The controller made the JobSet fail because a rule says FailJob."""

    # --- what a person asked for --------------------------------------------------------------------------------------
    RESTARTED_BY_HAND = "RestartedByHand"
    """A person requested a restart or another attempt."""
    BUDGET_RESET = "BudgetReset"
    """A person emptied the budget's window."""
    BACKOFF_SKIPPED = "BackoffSkipped"
    """A person ended the backoff."""
    REQUEST_EXPIRED = "RequestExpired"
    """The request is too old to be carried out."""
    REQUEST_PREMATURE = "RequestPremature"
    """The date of the request is further in the future than a wrong clock explains."""
    NO_INCIDENT = "NoIncident"
    """No incident is open, so there is nothing to retry."""
    NOTHING_HELD_BACK = "NothingHeldBack"
    """Neither a hold nor a backoff delays a restart of the group."""
    HELD_FOR_GOOD = "HeldForGood"
    """The group is held until its JobSet has failed."""
    RESTART_UNDER_WAY = "RestartUnderWay"
    """A restart is already in progress."""

    # --- the fleet ----------------------------------------------------------------------------------------------------
    RECOVERIES_IN_VAIN = "RecoveriesInVain"
    """Too many recoveries brought no progress, so the circuit breaker opens."""

    # --- drills -------------------------------------------------------------------------------------------------------
    DRILL_ACCEPTED = "DrillAccepted"
    """A failure of the named pods counts as a drill."""
    DRILL_LIMIT_OF_DAY = "DrillLimitOfDay"
    """The workload has had as many drills in the last 24 hours as the RecoveryConfig allows."""
    DRILL_OVERLAPS = "DrillOverlaps"
    """Another drill of the same workload runs, or has the pods of its group."""
    DRILL_TOO_LONG = "DrillTooLong"
    """The drill may last longer than 4 hours, or its time is over."""
    DRILL_NAMES_NO_MEMBER = "DrillNamesNoMember"
    """A named pod is no running member of the workload's group."""
    DRILL_AS_EXPECTED = "DrillAsExpected"
    """Every expectation of the drill held."""
    DRILL_UNEXPECTED_INCIDENTS = "DrillUnexpectedIncidents"
    """The drill caused another number of incidents than expected."""
    DRILL_NOT_RECOVERED = "DrillNotRecovered"
    """An incident of the drill did not end as Recovered, or has not ended."""
    DRILL_TOO_SLOW = "DrillTooSlow"
    """The recovery took longer than the drill allows."""
    DRILL_TOO_COSTLY = "DrillTooCostly"
    """The incidents left more GPU-seconds idle than the drill allows."""
    DRILL_RESUMED_EARLIER = "DrillResumedEarlier"
    """The training continued from its beginning, or from before the last checkpoint."""
    DRILL_RESUME_UNKNOWN = "DrillResumeUnknown"
    """Nothing shows where the training continued."""
    DRILL_DISTURBED = "DrillDisturbed"
    """A failure that the drill did not cause fell into it."""
    DRILL_DONE = "DrillDone"
    """All repeats of the drill were run."""
    DRILL_LIMIT = "DrillLimit"
    """The drill would exceed a limit of its file."""
    DRILL_INTERRUPTED = "DrillInterrupted"
    """A person stopped the drill."""
    DRILL_PRECONDITION = "DrillPrecondition"
    """The state of the job or of the cluster allows no drill, or no further one."""
    DRILL_INCIDENT_ELSEWHERE = "DrillIncidentElsewhere"
    """Another job has an incident."""
    DRILL_ABANDONED = "DrillAbandoned"
    """The time of the drill is over, and its client has not ended it."""
    DRILL_ACT_FAILED = "DrillActFailed"
    """The API server refused what the drill wanted to do."""

    # --- the proof that a job recovers --------------------------------------------------------------------------------
    RECOVERY_PROVEN = "RecoveryProven"
    """The group has recovered, and its training has confirmed that."""
    PROOF_EXPIRED = "ProofExpired"
    """The last proof is older than `drill.maxAge` of the policy."""
    PROOF_OUTDATED = "ProofOutdated"
    """The runtime, the policy or the image has changed since the last proof."""
    PROOF_NOT_VERIFIED = "ProofNotVerified"
    """The group has recovered, but only Ready pods show it."""
    NEVER_PROVEN = "NeverProven"
    """The group has not recovered from a failure yet."""

    @classmethod
    def _missing_(cls, value: object) -> "Reason":
        """A code of a newer version is read as Unknown: a rolling update must not make a ledger unreadable."""
        return cls.UNKNOWN


class Sentence(StrEnum):
    """Sentences that the reason alone does not determine. `core.sentences` has the texts."""

    AS_SAID = auto()
    ACCEPTED = auto()
    ADOPTED = auto()
    ALL_JOINED = auto()
    ALL_READY = auto()
    ALL_READY_AND_COMPLETE = auto()
    AND = auto()
    ANSWERED_BY_INCIDENT = auto()
    ATTEMPTS_BY_BUDGET = auto()
    ATTEMPTS_WHATEVER_BUDGET = auto()
    AVOIDS = auto()
    AVOIDS_FOR = auto()
    BACKOFF_ENDS_EARLY = auto()
    BOTH = auto()
    BREAKER_CLOSED = auto()
    BREAKER_OPENED = auto()
    BUDGET_LEFT = auto()
    BUT = auto()
    BUT_MEMBER_RUNS = auto()
    CONFIG_UNREADABLE = auto()
    CONTAINER_SUCCEEDED = auto()
    CRITERIA_MET = auto()
    DEADLINE_RUNS = auto()
    EVENT_OF_DRILL = auto()
    FAILED_LONG_AGO = auto()
    FAILURE_POLICY_AT_ONCE = auto()
    FORCE_OVERRIDES = auto()
    FREE_AS_DRILL = auto()
    FREE_OF_CHARGE = auto()
    GROWS = auto()
    HELD = auto()
    HELD_FAILING = auto()
    HELD_FAILING_BY_BUDGET = auto()
    HELD_NOT_FAILED = auto()
    HELD_NOT_SUSPENDED = auto()
    HELD_SUSPENDED = auto()
    HELD_UNTIL_RETRY = auto()
    HOLE_NOT_QUARANTINED = auto()
    HOLE_QUARANTINED = auto()
    HOLE_QUARANTINED_POD_STAYS = auto()
    HOLE_SEEN = auto()
    INDEX_EXITS_UNKNOWN = auto()
    INDEX_FAILS_NOW = auto()
    IN_MODE_OBSERVE = auto()
    IN_A_ROW = auto()
    IN_A_ROW_WAITS = auto()
    JOB_SET_HAS_ENDED = auto()
    JOB_SET_WAS_FAILED = auto()
    JOB_SET_WAS_DELETED = auto()
    JOB_WAS_DELETED = auto()
    LEAVES_OUT_AGENT = auto()
    LAST_NODES = auto()
    LEFT_ALONE = auto()
    LEFT_TO_ITS_CREATOR = auto()
    LEFT_AS_IT_IS = auto()
    LOSSES = auto()
    LOST_AGAIN_SINCE = auto()
    LOST_BUT_FINISHING = auto()
    LOST_TOGETHER = auto()
    MEMBER_SUCCEEDED = auto()
    NO_ONE_RECREATES_IT = auto()
    NODE_MAY_NOT_BE_CORDONED = auto()
    NOTHING_DONE = auto()
    NOT_CARRIED_OUT = auto()
    NOT_QUARANTINED = auto()
    NOT_RECREATED = auto()
    NOT_STARTED_BY_NODE = auto()
    NO_BACKOFF = auto()
    NO_SUCCESSOR_IN_TIME = auto()
    NO_USABLE_CONFIG = auto()
    NO_USABLE_POLICY = auto()
    PAUSED_UNTIL_RESUMED = auto()
    PAUSED_UNTIL_THEN = auto()
    QUOTA_KEPT = auto()
    RANKS_ARE_INDEPENDENT = auto()
    RANKS_HAVE_MET = auto()
    READY_MEANWHILE = auto()
    RECREATING_JOB_SET = auto()
    REFUSED = auto()
    RESTART = auto()
    RESTART_AGAIN = auto()
    RESTART_BY_HAND = auto()
    RESTART_IN_PLACE = auto()
    RESUMED_BEFORE = auto()
    RULE_IGNORES = auto()
    RULE_SAYS = auto()
    RUNS_SMALLER = auto()
    SEEN_THEN = auto()
    SHRINKS = auto()
    SINCE_BREAKER_CLOSED = auto()
    SINCE_ENFORCED = auto()
    SINCE_LAST_RESTART = auto()
    SPARED = auto()
    STANDING_ASIDE = auto()
    STARTS_ALL_RANKS = auto()
    STAYS_SUSPENDED = auto()
    STEPS_MADE = auto()
    SWITCHED_TO_OBSERVE = auto()
    TOO_FEW_NODES = auto()
    TOO_LATE_BY_BREAKER = auto()
    TOO_LATE_BY_MODE = auto()
    TRAINED_BEFORE_POD_LOST = auto()
    WAITING_FOR_FINALIZER = auto()
    WAITING_FOR_JOB = auto()
    WAITING_FOR_JOIN = auto()
    WAITING_FOR_OLD_JOB_SET = auto()
    WAITING_FOR_STEP = auto()
    WAITING_FOR_SUCCESSOR = auto()
    WAITS_ON_ITS_OWN = auto()
    WAITS_ON_NODES = auto()
    WAITS_WITHOUT_NODES = auto()
    WAIT_IS_LIMITED = auto()
    WITHHELD = auto()
    WOULD_BUT_BREAKER = auto()
    WOULD_BUT_OBSERVE = auto()
    WOULD_BY = auto()
    WOULD_FAIL = auto()
    WOULD_HOLD = auto()
    WOULD_LEAVE = auto()
    WOULD_RECREATE_JOB_SET = auto()
    WOULD_RESTART = auto()


Detail: TypeAlias = "str | int | Explanation"


class Explanation(msgspec.Struct, frozen=True):
    """A reason with the details of its sentence."""

    reason: Reason
    sentence: Sentence | Reason
    """Which sentence is rendered. The reason itself, if it has only one."""
    details: Mapping[str, Detail]


def because(reason: Reason, **details: Detail) -> Explanation:
    """The reason, with its own sentence."""
    return Explanation(reason, reason, details)


def explained(sentence: Sentence, reason: Reason, **details: Detail) -> Explanation:
    """The reason, with a sentence that several reasons share, or with one of its several sentences."""
    return Explanation(reason, sentence, details)


def as_said(reason: Reason, message: str) -> Explanation:
    """A reason whose message exists already: from the ledger, or in a person's own words."""
    return explained(Sentence.AS_SAID, reason, message=message)


def all_of(explanations: Sequence[Explanation]) -> Explanation:
    """One explanation of all of them, in this order, with the reason of the last one."""
    return reduce(lambda first, more: explained(Sentence.BOTH, more.reason, first=first, more=more), explanations)
