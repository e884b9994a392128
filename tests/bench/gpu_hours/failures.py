"""What interrupts a training, how often, and which machine is lost with it: Llama 3's published counts.

Source: Grattafiori et al., "The Llama 3 Herd of Models", arXiv:2407.21783, section 3.3.4 and Table 5: 419 unexpected
interruptions in a 54-day period of the pre-training of Llama 3 405B, on 16,384 H100 GPUs. The rate and the counts of
the causes are the paper's. The paper prints 30.1 % beside the 148 of "Faulty GPU", which are 35.3 % of 419; the counts
add up to 419, so this model uses the counts. The 47 planned interruptions of the same period are left out.

The paper does not say which causes take the machine away, nor how they show. That is our judgement.
"""

import random
from dataclasses import dataclass

GPUS_PER_NODE = 8
DAY_SECONDS = 86_400.0

LLAMA_DAYS = 54
LLAMA_GPUS = 16_384

EXIT_SECONDS = 2.1
"""A process ends. docs/benchmarks.md, real nodes: Detected takes 0.8 to 2.1 s."""
SILENCE_SECONDS = 50.0 + 9.0
"""A node stops answering. It is NotReady after 50 s, and docs/benchmarks.md has up to 9 s of Fencing after that."""
HANG_SECONDS = 600.0
"""All ranks wait in a collective until NCCL's watchdog ends them: after 10 min by torch's default."""


@dataclass(frozen=True)
class Cause:
    """A row of Table 5."""

    name: str
    category: str
    count: int
    loses_node: bool = True
    """The machine is unavailable until it is repaired. False: the same machine is used again at once."""
    detected_seconds: float = EXIT_SECONDS


CAUSES = (
    Cause("Faulty GPU", "GPU", 148),
    Cause("GPU HBM3 Memory", "GPU", 72),
    Cause("Software Bug", "Dependency", 54, loses_node=False),
    Cause("Network Switch/Cable", "Network", 35, loses_node=False, detected_seconds=HANG_SECONDS),
    Cause("Host Maintenance", "Unplanned Maintenance", 32),
    Cause("GPU SRAM Memory", "GPU", 19),
    Cause("GPU System Processor", "GPU", 17),
    Cause("NIC", "Host", 7, detected_seconds=HANG_SECONDS),
    Cause("NCCL Watchdog Timeouts", "Unknown", 7, loses_node=False, detected_seconds=HANG_SECONDS),
    Cause("Silent Data Corruption", "GPU", 6),
    Cause("GPU Thermal Interface + Sensor", "GPU", 6),
    Cause("SSD", "Host", 3),
    Cause("Power Supply", "Host", 3, detected_seconds=SILENCE_SECONDS),
    Cause("Server Chassis", "Host", 2, detected_seconds=SILENCE_SECONDS),
    Cause("IO Expansion Board", "Host", 2, detected_seconds=SILENCE_SECONDS),
    Cause("Dependency", "Dependency", 2, loses_node=False),
    Cause("CPU", "Host", 2, detected_seconds=SILENCE_SECONDS),
    Cause("System Memory", "Host", 2, detected_seconds=SILENCE_SECONDS),
)


@dataclass(frozen=True)
class FailureModel:
    """How often each cause strikes. Each is a Poisson process whose rate is proportional to the GPUs."""

    causes: tuple[Cause, ...] = CAUSES
    times_llama: float = 1.0
    """The failure rate of a GPU, as a multiple of Llama 3's."""
    exponential_repair: bool = True
    """The repair time is exponentially distributed. False: it is always its mean."""

    def per_gpu_second(self, *, loses_node: bool) -> float:
        """The rate of all causes that take a machine away, or of all that do not."""
        count = sum(each.count for each in self.causes if each.loses_node is loses_node)
        return self.times_llama * count / (LLAMA_DAYS * DAY_SECONDS * LLAMA_GPUS)


LLAMA_3 = FailureModel()


@dataclass(frozen=True)
class Failure:
    """One interruption."""

    at_seconds: float
    cause: Cause
    place: int
    """The machine, if the cause takes it away. Else the node of the job, from 0, whose process ends."""
    repairs: float
    """The repair time, as a multiple of its mean."""


def failures_of(seed: int, model: FailureModel, *, nodes: int, machines: int, days: float) -> tuple[Failure, ...]:
    """Failures of this many machines, and of a job of this many nodes on them. The same seed gives the same world."""
    lost = _drawn(random.Random(f"{seed} machines"), model, places=machines, days=days, loses_node=True)
    ended = _drawn(random.Random(f"{seed} processes"), model, places=nodes, days=days, loses_node=False)
    return tuple(sorted(lost + ended, key=lambda each: each.at_seconds))


def _drawn(entropy: random.Random, model: FailureModel, *, places: int, days: float, loses_node: bool) -> list[Failure]:
    causes = [each for each in model.causes if each.loses_node is loses_node]
    rate = model.per_gpu_second(loses_node=loses_node) * places * GPUS_PER_NODE
    found: list[Failure] = []
    at_seconds = entropy.expovariate(rate) if rate else float("inf")
    while at_seconds < days * DAY_SECONDS:
        (cause,) = entropy.choices(causes, [each.count for each in causes])
        place, repairs = entropy.randrange(places), entropy.expovariate(1.0)
        found.append(Failure(at_seconds, cause, place, repairs if model.exponential_repair else 1.0))
        at_seconds += entropy.expovariate(rate)
    return found
