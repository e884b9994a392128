"""JobSets and Jobs, with the fields that membership needs."""

from datetime import UTC, datetime

from recovery.core.model.facts import Condition, JobFacts, JobSetFacts, ReplicatedJobFacts

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def jobset(*replicated: ReplicatedJobFacts) -> JobSetFacts:
    return JobSetFacts("llm", "u", "1", 1, NOW, replicated_jobs=replicated)


def job(*, complete: bool = False) -> JobFacts:
    conditions = (Condition("Complete", "True"),) if complete else ()
    return JobFacts("llm-x-0", "u", "1", "js", "x", NOW, conditions=conditions)
