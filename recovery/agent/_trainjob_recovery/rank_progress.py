"""Runs in a rank: shows the agent when this process joins the others, and its training steps.

It writes a page of memory that it shares with the agent. What it learns, it learns from hooks in torch, which it never
imports itself: a finder that stands first sees when the program has imported torch.

The start of every rank imports this module, so it imports nothing that an interpreter has not loaded at its start, and
what it needs later, torch has loaded. Nothing in it raises into the program.
"""

import _frozen_importlib
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # what typing's own would import is not loaded at the start
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any
else:
    ModuleSpec = _frozen_importlib.ModuleSpec

PAGE_BYTES = 4096
ARRIVED_AT, JOINED_AT, STEP_AT = 0, 1, 2
"""The words of a page that are times of the system's monotonic clock. 0: not yet."""
STEP, FIRST_STEP, ABSOLUTE = 3, 4, 5
"""The words of a page that are integers."""
STEP_MAX = 2**53
_READS_MAX = 16
"""How often the state of one optimizer is read at most: some optimizers have a new state at each step."""

_PACKAGE = "_trainjob_recovery"
_GROUPS = ("torch.distributed.distributed_c10d", "torch.distributed")
_OPTIMIZER = "torch.optim.optimizer"
_WATCHED = (*_GROUPS, _OPTIMIZER, "torch")


class _Count:
    """How often an optimizer has stepped."""

    __slots__ = ("gone", "reads", "state", "steps")

    def __init__(self, gone: "Any") -> None:
        self.gone = gone
        """A weak reference, which notices that the optimizer is gone. The optimizer must not be kept."""
        self.steps = 0
        self.state = 0
        """The id of its state, which changes when a checkpoint is loaded. The state must not be kept either."""
        self.reads = 0


class ShownProgress:
    """What this process shows. In a process without a page, such as a child, it shows nothing."""

    def __init__(self) -> None:
        self._times: Any = None
        """A view of the page. None: this process shows nothing."""
        self._numbers: Any = None
        self._counts: dict[int, _Count] = {}
        """By the id of an optimizer."""
        self._script_says = False
        """The script says its steps itself, so the optimizers do not count any more."""
        self._hooked = False

    def open(self, file: int) -> None:
        """Show it on this page from now on. The file may be closed afterwards."""
        view = _shared_memory(file)
        self._times, self._numbers = view.cast("d"), view.cast("q")

    def forget(self) -> None:
        """This process is a child of the rank."""
        self._times = self._numbers = None

    def install(self) -> None:
        """Watch what the program imports from now on, and what it has imported."""
        try:
            os.register_at_fork(after_in_child=self.forget)
            sys.meta_path.insert(0, _Finder(self))
            for name in _WATCHED:
                if _is_loaded(name):
                    self.imported(name)
        except Exception:  # noqa: BLE001, S110 - the program matters more
            pass

    def imported(self, name: str) -> None:
        """This module of torch was imported."""
        try:
            if name in _GROUPS:
                _hook_groups(self, vars(sys.modules[name]))
            else:
                self._hook_optimizers()
        except Exception:  # noqa: BLE001, S110 - the program matters more
            pass

    # ---- joining -----------------------------------------------------------------------------------------------------

    def arrive(self) -> None:
        if self._times is not None and not self._times[ARRIVED_AT]:
            self._times[ARRIVED_AT] = time.monotonic()

    def join(self) -> None:
        if self._times is not None and not self._times[JOINED_AT]:
            self._times[JOINED_AT] = time.monotonic()

    # ---- steps -------------------------------------------------------------------------------------------------------

    def _hook_optimizers(self) -> None:
        """Once torch is complete, so that whether it compiles can be asked."""
        register = getattr(sys.modules.get(_OPTIMIZER), "register_optimizer_step_post_hook", None)
        if register is None or self._hooked or not _is_loaded("torch"):
            return
        self._hooked = True
        register(_hook_of(self, _asks_whether_torch_compiles()))

    def count(self, optimizer: "Any") -> None:
        """This optimizer has made a step."""
        try:
            numbers = self._numbers
            if numbers is None or self._script_says:
                return
            known = self._counts.get(id(optimizer))
            if known is not None and (known.state == id(optimizer.state) or known.reads == _READS_MAX):
                known.steps += 1
            elif (known := self._read(optimizer, known)) is None:
                return
            if known.steps > numbers[STEP]:
                numbers[STEP] = known.steps
                self._times[STEP_AT] = time.monotonic()
        except Exception:  # noqa: BLE001, S110 - the program matters more
            pass

    def _read(self, optimizer: "Any", known: "_Count | None") -> "_Count | None":
        """Look at an optimizer that is new, or that has loaded a state. None: this was no step of the training."""
        from weakref import ref

        numbers, counts, key = self._numbers, self._counts, id(optimizer)
        new = known is None
        if known is None:
            known = counts[key] = _Count(ref(optimizer, lambda _: counts.pop(key, None)))
        before, done = known.steps, _steps_in_state(optimizer)
        known.steps = before + 1 if done is None else done
        known.state, known.reads = id(optimizer.state), known.reads + 1
        if done is not None:
            numbers[ABSOLUTE] = 1
        if new or known.steps > before + 1:
            numbers[FIRST_STEP] = max(numbers[FIRST_STEP], known.steps - 1)
        elif numbers[STEP] == before:  # the program goes back to a checkpoint
            numbers[STEP] = known.steps - 1
        return None if new and _changes_nothing(optimizer) else known

    def say(self, done: "Any") -> None:
        """The script has made so many steps."""
        try:
            numbers, times = self._numbers, self._times
            if numbers is None or times is None:
                return
            step = done.__index__()
            if not 0 <= step <= STEP_MAX:
                return
            if not self._script_says:
                self._script_says = True
                numbers[FIRST_STEP], numbers[ABSOLUTE] = max(step - 1, 0), 1
            numbers[STEP] = step
            times[STEP_AT] = time.monotonic()
        except Exception:  # noqa: BLE001, S110 - the program matters more
            pass


def of_rank(page: str) -> ShownProgress:
    """`page` is the number of an open file. Empty: there is none, as where the kernel refuses such memory."""
    progress = ShownProgress()
    try:
        if page:
            progress.open(int(page))
    except Exception:  # noqa: BLE001, S110 - the program matters more
        pass
    return progress


def _is_loaded(name: str) -> bool:
    module = sys.modules.get(name)
    return module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False)


def _shared_memory(file: int) -> memoryview:
    """Map the page. A mapping of the module mmap would keep a copy of the file open, which the program could see."""
    loaded = "_ctypes" in sys.modules
    import _ctypes

    if not loaded:
        del sys.modules["_ctypes"]

    class Pointer(_ctypes._SimpleCData):  # type: ignore[type-arg]
        _type_ = "P"

    class Long(_ctypes._SimpleCData):  # type: ignore[type-arg]
        _type_ = "l"

    class Byte(_ctypes._SimpleCData):  # type: ignore[type-arg]
        _type_ = "B"

    class Bytes(_ctypes.Array):  # type: ignore[type-arg]
        _type_, _length_ = Byte, PAGE_BYTES

    class Function(_ctypes.CFuncPtr):
        _flags_ = 1  # as C calls it
        _restype_ = Pointer

    library = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]
    mmap = Function(_ctypes.dlsym(library, "mmap"))
    read_and_write, shared = 3, 1
    address = mmap(Pointer(None), Long(PAGE_BYTES), read_and_write, shared, file, Long(0))
    address = address.value if isinstance(address, Pointer) else address
    if address is None or address + 1 == 1 << 64:
        raise OSError("the page cannot be mapped")
    return memoryview(Bytes.from_address(address)).cast("B")


def _hook_groups(progress: ShownProgress, names: "dict[str, Any]") -> None:
    """See the calls of `init_process_group` in this module, which may have it from the one that defines it."""
    given = names.get("init_process_group")
    if type(given) is not type(_hook_groups) or getattr(given, "__globals__", None) is globals():
        return
    names["init_process_group"] = watched = _watched(progress, given)
    for module in list(sys.modules.values()):  # where torch was imported before this hook
        held = vars(module) if type(module) is type(sys) else {}
        if held.get("init_process_group") is given:
            held["init_process_group"] = watched


def _watched(progress: ShownProgress, function: "Any") -> "Any":
    from functools import wraps

    @wraps(function)
    def init_process_group(*args: "Any", **kwargs: "Any") -> "Any":
        progress.arrive()
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            # The traceback stays as it were without this function.
            error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
            raise
        progress.join()
        return result

    return init_process_group


def _hook_of(progress: ShownProgress, compiles: "Callable[[], bool]") -> "Callable[[Any, Any, Any], None]":
    """A function of closures alone, because torch.compile cannot find the globals of this module."""
    count = progress.count

    def after_step(optimizer: "Any", args: "Any", kwargs: "Any") -> None:
        if not compiles():
            count(optimizer)

    return after_step


def _asks_whether_torch_compiles() -> "Callable[[], bool]":
    """torch.compile takes what this returns for a constant, so that a compiled step contains nothing of the hook."""
    for name in ("torch.compiler", "torch._utils"):
        asks: Callable[[], bool] | None = getattr(sys.modules.get(name), "is_compiling", None)
        if asks is not None:
            return asks
    return lambda: False


def _steps_in_state(optimizer: "Any") -> int | None:
    """The steps of an optimizer that counts them itself. None: it does not, or on a GPU, which is never waited for."""
    highest = None
    try:
        for state in [*optimizer.state.values(), *getattr(optimizer, "param_groups", ())]:
            if (value := state.get("step")) is None:
                continue
            if (step := _number(value)) is None:
                return None
            if 1 <= step <= STEP_MAX:
                highest = max(highest or 0, int(step))
    except Exception:  # noqa: BLE001 - it is the state of any optimizer
        return None
    return highest


def _changes_nothing(optimizer: "Any") -> bool:
    """Its learning rates are 0, as in the step that torch makes to have a state into which a checkpoint is loaded."""
    rates = [_number(group["lr"]) for group in getattr(optimizer, "param_groups", ()) if "lr" in group]
    return bool(rates) and all(rate == 0 for rate in rates)


def _number(value: "Any") -> float | None:
    """A number, or a tensor of one. None: it is on a GPU."""
    if isinstance(value, (int, float)):
        return value
    number: float | None = value.item() if value.device.type == "cpu" else None
    return number


class _Watched(ModuleSpec):
    """The specification of a module of torch. The import system says by `_initializing` when it has been executed.

    So no function of this file stands between the program and torch in a traceback.
    """

    progress: ShownProgress

    @property
    def _initializing(self) -> bool:
        return bool(self.__dict__.get("_initializing"))

    @_initializing.setter
    def _initializing(self, now: bool) -> None:
        self.__dict__["_initializing"] = now
        if not now:
            progress = self.__dict__.pop("progress")
            self.__class__ = ModuleSpec  # type: ignore[assignment]
            if self.name in sys.modules:
                progress.imported(self.name)


_Watched.__name__ = _Watched.__qualname__ = "ModuleSpec"


class _Finder:
    """Stands first among the finders. It finds what the others find, and the module that a script may import."""

    def __init__(self, progress: ShownProgress) -> None:
        self._progress = progress

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        if name == _PACKAGE:
            return ModuleSpec(name, self)  # type: ignore[arg-type]
        if name not in _WATCHED:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None) if finder is not self else None
            spec: ModuleSpec | None = find(name, path, target) if find is not None else None
            if spec is not None:
                if type(spec) is ModuleSpec:
                    spec.__dict__["progress"] = self._progress
                    spec.__class__ = _Watched
                return spec
        return None

    def create_module(self, spec: "ModuleSpec") -> None:
        return None

    def exec_module(self, module: "ModuleType") -> None:
        """The module that a script may import."""
        say = self._progress.say

        def step(done: int) -> None:
            """Say that the training has made so many steps, in all its runs. Call it after each step."""
            say(done)

        step.__module__, step.__qualname__ = _PACKAGE, "step"
        module.step = step  # type: ignore[attr-defined]
