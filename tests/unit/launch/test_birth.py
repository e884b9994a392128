"""How settings at birth change a Job, beyond the cases that `tests/contract` shares with the admission policy."""

import copy

import pytest

from recovery.core.model import annotations
from recovery.launch import birth
from recovery.launch.birth import born
from recovery.workloads import jobset
from tests.contract.test_birth_settings import AFFINITIES, HOSTS, as_job_set_makes_it, told_size
from tests.unit.fake_api import Object

SETTINGS = {"revision": 3, "jobSetUID": "set-1", "replicatedJob": "node", "nodes": 3, "avoidHosts": list(HOSTS)}


def job(affinity: Object | None = None) -> Object:
    """A Job for four nodes, as JobSet creates it."""
    made = as_job_set_makes_it({"metadata": {"name": "llm", "uid": "set-1"}}, affinity)
    made["spec"] = {**told_size(4), "template": {**made["spec"]["template"], "spec": told_size(4)["template"]["spec"]}}
    if affinity is not None:
        made["spec"]["template"]["spec"]["affinity"] = affinity
    return made


@pytest.mark.parametrize("affinity", [affinity for affinity, _ in AFFINITIES])
def test_settings_that_were_applied_change_nothing_more(affinity: Object | None) -> None:
    """The API server asks again if other plugins change the Job, and the policy may be installed beside the webhook."""
    once = born(job(affinity), [SETTINGS])
    assert once != job(affinity)
    assert born(once, [SETTINGS]) == once


def test_a_job_to_which_they_do_not_fit_has_none_of_them() -> None:
    """The policy makes one patch, and the API server ignores a patch that fails."""
    without = job()
    del without["spec"]["template"]["metadata"]["annotations"]
    assert born(without, [SETTINGS]) == without


def test_what_was_given_stays_as_it_was() -> None:
    """The model creates several Jobs from one template."""
    made = job({})
    before = copy.deepcopy(made)
    assert born(made, [SETTINGS]) != before
    assert made == before


def test_names_are_those_of_the_controller() -> None:
    """Neither module may import the other."""
    assert birth.BIRTH_SETTINGS_ANNOTATION == annotations.BIRTH_SETTINGS_ANNOTATION
    assert birth.NODES_ANNOTATION == annotations.NODES_ANNOTATION
    for name in ("JOBSET_NAME_LABEL", "JOBSET_UID_LABEL", "REPLICATED_JOB_LABEL"):
        assert getattr(birth, name) == getattr(jobset, name)
