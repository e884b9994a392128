"""What counts as a difference between the modelled cluster and the real one, and how it is reported."""

from tests.walks.comparison import Key, best, compare, report
from tests.walks.draw import draw
from tests.walks.history import History, Section

JOB = "Job llm-node-0#1"
POD = "Job llm-node-0#1/0 pod 1"


def history(*sections: dict[str, list[str]], stands: str = "begun") -> History:
    """Each section is what appeared, by role. `stands`: the final state of the Job."""
    return History([Section(f"step {n}", [f"act {n}"], told, {JOB: stands}) for n, told in enumerate(sections)])


STARTED = {JOB: ["born"], POD: ["born", "Pending", "Running"]}
FAILED = {JOB: ["FailureTarget=True", "Failed=True"], POD: ["Failed"]}
REAL = history(STARTED, FAILED)


def test_equal_histories_do_not_differ() -> None:
    compared = compare((REAL, REAL), history(STARTED, FAILED))
    assert (compared.racy, compared.differences) == (0, ())
    assert compared.agreed == 8, "of each step the act, the Job's state, and what appeared on the Job and on the pod"


def test_another_order_of_conditions_is_a_difference() -> None:
    model = history(STARTED, {**FAILED, JOB: ["Failed=True", "FailureTarget=True"]})
    assert compare((REAL, REAL), model).differences == (Key(1, "appeared", JOB),)


def test_a_pod_that_only_the_model_has_is_a_difference() -> None:
    other = "Job llm-node-0#1/0 pod 2"
    model = history(STARTED, {**FAILED, other: ["born"]})
    assert compare((REAL, REAL), model).differences == (Key(1, "appeared", other),)


def test_a_pod_that_the_model_lacks_is_a_difference() -> None:
    model = history({JOB: ["born"]}, FAILED)
    assert compare((REAL, REAL), model).differences == (Key(0, "appeared", POD),)


def test_another_end_state_is_a_difference() -> None:
    model = history(STARTED, FAILED, stands="begun failed=1")
    assert compare((REAL, REAL), model).differences == (Key(0, "stands", JOB), Key(1, "stands", JOB))


def test_where_the_real_ones_disagree_nothing_is_a_difference() -> None:
    other = history(STARTED, {**FAILED, POD: ["deleting", "Failed"]})
    model = history(STARTED, {**FAILED, POD: ["Failed", "deleting"]})
    compared = compare((REAL, other), model)
    assert (compared.racy, compared.differences) == (1, ())


def test_the_first_model_that_does_not_differ_is_enough() -> None:
    tried = 0

    def models() -> list[History]:
        nonlocal tried
        tried += 1
        return [history(STARTED), REAL, history()]

    model, compared = best((REAL, REAL), iter(models()))
    assert (model, compared.differences, tried) == (REAL, (), 1)


def test_of_models_that_all_differ_the_one_that_does_so_latest_is_told() -> None:
    late, early = history(STARTED, {}), history({}, FAILED)
    model, _ = best((REAL, REAL), iter([early, late]))
    assert model is late


def test_an_outcome_of_two_acts_at_once_may_be_one_that_no_model_has_drawn_as_a_whole() -> None:
    def both(one: list[str], other: list[str]) -> History:
        appeared = {JOB: one, POD: other}
        return History([Section("step 0", ["act", "other act"], appeared, {}), *REAL.sections[1:]])

    real = both(["a"], ["b"])
    _, compared = best((real, real), iter([both(["a"], ["c"]), both(["d"], ["b"])]))
    assert compared.differences == ()
    assert compared.agreed == 2, "the acts and one line; the other line and what follows is left out"
    _, compared = best((real, real), iter([both(["a"], ["c"]), both(["d"], ["e"])]))
    assert compared.differences[0] == Key(0, "appeared", POD)


def test_a_report_tells_seed_job_steps_both_histories_and_the_first_difference() -> None:
    model = history(STARTED, {**FAILED, POD: ["Succeeded"]})
    compared = compare((REAL, REAL), model)
    told = report(draw(3), (REAL, REAL), model, compared.differences)
    assert told.splitlines()[0] == "seed 3: the modelled cluster differs from the real one"
    assert all(line in told for line in draw(3).lines())
    assert f"first difference: step 1, {POD} appeared\n  real:     Failed\n  modelled: Succeeded\n" in told
    [marked] = [line for line in told.splitlines() if line.startswith("! ")]
    assert marked.split() == f"! + {POD}: Failed ! + {POD}: Succeeded".split()
