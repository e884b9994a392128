"""How steps of optimizers become the step of a rank, whatever optimizers the program has."""

import gc
import os
import weakref
from dataclasses import dataclass, field
from typing import Any

import pytest

from recovery.agent._trainjob_recovery import rank_progress
from recovery.agent._trainjob_recovery.pages import Page
from recovery.agent._trainjob_recovery.rank_progress import STEP_MAX, ShownProgress


class Device:
    def __init__(self, kind: str) -> None:
        self.type = kind


class Tensor:
    """Of one number. That of a GPU must not be read: it would wait for the GPU, and break the capture of a graph."""

    def __init__(self, value: float, device: str = "cpu") -> None:
        self.value, self.device = value, Device(device)

    def item(self) -> float:
        assert self.device.type == "cpu", "a tensor on a GPU was read"
        return self.value

    __float__ = __int__ = __index__ = __bool__ = item


@dataclass(eq=False)
class Optimizer:
    state: Any = field(default_factory=dict)
    param_groups: list[dict[str, Any]] = field(default_factory=list)


class Rank:
    """A process with a page."""

    def __init__(self) -> None:
        self.page, self.progress = Page(), ShownProgress()
        self.progress.open(self.page.file)
        self.page.close_file()

    def steps(self, optimizer: Any, times: int = 1) -> None:
        for _ in range(times):
            self.progress.count(optimizer)

    @property
    def shows(self) -> tuple[int, int, bool]:
        """Step, the step before the first one, and whether they are absolute."""
        found = self.page.read()
        return found.step, found.first, found.absolute


def test_without_a_state_steps_count_from_the_start_of_the_process() -> None:
    rank = Rank()
    rank.steps(Optimizer(), 3)
    assert rank.shows == (3, 0, False)


@pytest.mark.parametrize("step", [1001, 1001.0, Tensor(1001.0)])
def test_an_optimizer_that_counts_its_steps_says_where_the_training_is(step: object) -> None:
    """The hook runs after the first step, so the state has it already."""
    rank = Rank()
    rank.steps(Optimizer({"weight": {"step": step}}), 3)
    assert rank.shows == (1003, 1000, True)


def test_a_fresh_training_that_counts_is_absolute() -> None:
    rank = Rank()
    rank.steps(Optimizer({"weight": {"step": Tensor(1.0)}}))
    assert rank.shows == (1, 0, True)


@pytest.mark.parametrize("device", ["cuda", "xpu", "meta"])
def test_a_state_on_a_gpu_is_never_touched(device: str) -> None:
    rank = Rank()
    rank.steps(Optimizer({"weight": {"step": Tensor(1001.0, device)}}), 2)
    assert rank.shows == (2, 0, False)


@pytest.mark.parametrize(
    "state",
    [None, [], {"weight": None}, {"weight": {"step": "many"}}, {"weight": {"step": float("nan")}}, {"w": {"step": -4}}],
)
def test_a_state_of_another_kind_is_no_step(state: object) -> None:
    rank = Rank()
    rank.steps(Optimizer(state), 2)
    assert rank.shows == (2, 0, False)


def test_a_weight_that_was_added_late_does_not_hide_how_far_the_others_are() -> None:
    rank = Rank()
    rank.steps(Optimizer({"late": {"step": 3}, "old": {"step": 1001}, "frozen": {}}))
    assert rank.shows == (1001, 1000, True)


def test_an_optimizer_may_count_its_steps_for_a_group_of_weights() -> None:
    """As those of apex do."""
    rank = Rank()
    rank.steps(Optimizer({"weight": {"exp_avg": 1}}, [{"lr": 0.1, "step": 1001}]), 2)
    assert rank.shows == (1002, 1000, True)


def test_a_checkpoint_that_is_loaded_after_the_first_step_counts_from_its_step() -> None:
    rank, optimizer = Rank(), Optimizer({"weight": {"step": 1}})
    rank.steps(optimizer)
    optimizer.state = {"weight": {"step": 1001}}
    rank.steps(optimizer, 2)
    assert rank.shows == (1002, 1000, True)


def test_the_step_that_torch_makes_to_load_a_checkpoint_is_none_of_the_training() -> None:
    """`set_optimizer_state_dict` steps once with a learning rate of 0, so that the optimizer has a state."""
    rank, optimizer = Rank(), Optimizer({"weight": {"step": 1}}, [{"lr": Tensor(0.0)}, {"lr": 0.0}])
    rank.steps(optimizer)
    assert rank.page.read().step_at is None
    optimizer.state, optimizer.param_groups = {"weight": {"step": 1001}}, [{"lr": 0.1}]
    rank.steps(optimizer)
    assert rank.shows == (1001, 1000, True)


def test_a_learning_rate_on_a_gpu_is_not_touched_either() -> None:
    rank = Rank()
    rank.steps(Optimizer({}, [{"lr": Tensor(0.0, "cuda")}]))
    assert rank.shows == (1, 0, False)


def test_a_warm_up_that_begins_with_a_rate_of_0_shows_its_second_step() -> None:
    rank, optimizer = Rank(), Optimizer({}, [{"lr": 0.0}])
    rank.steps(optimizer)
    assert rank.page.read().step_at is None
    optimizer.param_groups[0]["lr"] = 0.1
    rank.steps(optimizer)
    assert rank.shows == (2, 0, False)


def test_a_program_may_go_back_to_a_checkpoint() -> None:
    rank, optimizer = Rank(), Optimizer({"weight": {"step": 1001}})
    rank.steps(optimizer, 100)
    optimizer.state = {"weight": {"step": 1051}}
    rank.steps(optimizer, 2)
    assert rank.shows == (1052, 1000, True)


def test_a_state_that_is_another_one_each_time_is_not_read_for_ever() -> None:
    class State(dict[str, Any]):
        reads = 0

        def values(self) -> Any:
            State.reads += 1
            return super().values()

    class Wrapper:
        def __init__(self) -> None:
            self.given: list[State] = []

        @property
        def state(self) -> State:
            self.given.append(State())
            return self.given[-1]

    rank, wrapper = Rank(), Wrapper()
    rank.steps(wrapper, 100)
    assert rank.shows[0] == 100
    assert State.reads == 16


def test_the_state_of_an_optimizer_is_not_kept() -> None:
    """It may be most of the memory of a GPU."""

    class State(dict[str, Any]):
        pass

    rank, optimizer = Rank(), Optimizer(State())
    gone = weakref.ref(optimizer.state)
    rank.steps(optimizer, 2)
    optimizer.state = State()
    assert gone() is None


def test_of_several_optimizers_the_highest_count_is_the_step() -> None:
    """Such as one with and one without a state, which both step once in a step of the training."""
    rank, plain, counting = Rank(), Optimizer(), Optimizer({"weight": {"step": 1001}})
    for _ in range(2):
        rank.steps(plain)
        rank.steps(counting)
    assert rank.shows == (1002, 1000, True)


def test_the_time_of_a_step_is_that_of_the_optimizer_that_leads() -> None:
    rank, first, second = Rank(), Optimizer(), Optimizer()
    rank.steps(first, 2)
    at = rank.page.read().step_at
    rank.steps(second)
    assert rank.page.read().step_at == at


def test_an_optimizer_that_is_gone_leaves_nothing_and_its_successor_starts_anew() -> None:
    rank = Rank()
    for _ in range(100):
        rank.steps(Optimizer(), 2)
        gc.collect()
    assert rank.shows == (2, 0, False)
    assert rank.progress._counts == {}


def test_an_optimizer_that_cannot_be_referred_to_is_left_out() -> None:
    class Slots:
        __slots__ = ("state",)

    rank = Rank()
    rank.steps(Slots())
    assert rank.page.read().step_at is None


@pytest.mark.parametrize("number", ["x", None, 1.5, -1, STEP_MAX + 1])
def test_what_is_no_step_is_ignored(number: object) -> None:
    rank = Rank()
    rank.progress.say(number)
    assert rank.page.read().step_at is None


def test_a_script_may_go_back_to_an_earlier_step() -> None:
    rank = Rank()
    rank.progress.say(500)
    rank.progress.say(400)
    assert rank.shows == (400, 400, True)


def test_without_a_page_nothing_is_counted() -> None:
    progress = ShownProgress()
    progress.arrive()
    progress.join()
    progress.say(3)
    progress.count(Optimizer())
    assert progress._counts == {}


def test_a_compiled_step_contains_nothing_of_the_hook() -> None:
    rank, compiling = Rank(), [True]
    hook = rank_progress._hook_of(rank.progress, lambda: compiling[0])
    hook(Optimizer(), (), {})
    assert rank.page.read().step_at is None
    assert hook.__code__.co_names == (), "torch.compile cannot find the globals of this module"
    compiling[0] = False
    hook(Optimizer(), (), {})
    assert rank.page.read().step == 1


def test_whatever_a_program_writes_on_its_page_is_read_as_something_possible() -> None:
    rank = Rank()
    times, numbers = rank.progress._times, rank.progress._numbers
    for value in (float("nan"), float("inf"), -1.0):
        for place in range(3):
            times[place] = value
        found = rank.page.read()
        assert (found.arrived_at, found.joined_at, found.step_at) == (None, None, None)
    for place, value in ((3, -(2**63)), (4, 2**63 - 1), (5, 77)):
        numbers[place] = value
    assert rank.shows == (0, 0, False)


def test_a_rank_cannot_make_its_page_smaller() -> None:
    """Otherwise reading it would end the agent."""
    page = Page()
    with pytest.raises(PermissionError):
        os.ftruncate(page.file, 0)
    page.close_file()
