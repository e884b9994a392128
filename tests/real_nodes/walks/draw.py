"""Draws pods. One seed is a few of them that live and end side by side on one node."""

import random
from dataclasses import replace

from tests.real_nodes.walks.plan import Act, ActKind, Container, PodPlan, Script

PODS = 8
"""Pods of one seed."""
GRACES = (0, 1, 3, 5)
LEAVES_SECONDS = (0.0, 1.2, 3.5, 8.0)
"""At once; within the shortest grace that a kubelet grants; only within the longest grace drawn; later than that."""
SLOW_SECONDS = 3.5
AGAIN_SECONDS = 2.0
"""Time between two deletes."""


def draw(seed: int) -> tuple[PodPlan, ...]:
    return tuple(_Dice(seed * PODS + number).pod(f"walk-{seed}-{number}") for number in range(PODS))


class _Dice:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def pod(self, name: str) -> PodPlan:
        restart_policy = self._random.choice(("Never", "OnFailure", "Always"))
        containers = tuple(
            Container(f"main-{number}", self._main()) for number in range(self._of((1, 5), (2, 3), (3, 1)))
        )
        # If a sidecar that breaks were among them, it would be a race which of two containers ends first.
        may_break = all(each.script.lasts_seconds is None for each in containers)
        init_containers = tuple(self._init(number, may_break) for number in range(self._of((0, 5), (1, 4), (2, 2))))
        plan = PodPlan(name, restart_policy, self._random.choice(GRACES), init_containers, containers)
        return replace(plan, acts=self._acts(plan))

    def _of(self, *choices: tuple[int, int]) -> int:
        """Draws one of the values. Each choice is a value and its weight."""
        return self._random.choices([value for value, _ in choices], [weight for _, weight in choices])[0]

    def _main(self) -> Script:
        lasts_seconds = self._random.choice((None, None, None, 1, 2))
        code = self._random.choice((0, 0, 1, 3, 137))
        out_of_memory = code == 137 and lasts_seconds is not None
        return self._deaf_or_not(lasts_seconds, code, out_of_memory=out_of_memory)

    def _init(self, number: int, may_break: bool) -> Container:
        if self._of((1, 2), (0, 1)):
            # A sidecar that breaks runs long enough for the next container to start.
            broken = may_break and self._of((0, 3), (1, 1))
            return Container(f"sidecar-{number}", self._deaf_or_not(3 if broken else None, 1), native=True)
        lasts_seconds = self._random.choice((1, 1, 1, None))
        return Container(f"init-{number}", self._deaf_or_not(lasts_seconds, self._of((0, 3), (2, 1))))

    def _deaf_or_not(self, lasts_seconds: int | None, code: int, *, out_of_memory: bool = False) -> Script:
        term_code = self._random.choice((0, 143, 143, None))
        leaves_seconds = self._random.choice(LEAVES_SECONDS)
        return Script(lasts_seconds, code, out_of_memory, term_code, leaves_seconds)

    def _acts(self, plan: PodPlan) -> tuple[Act, ...]:
        delete = Act(ActKind.DELETE)
        shorter = Act(ActKind.DELETE, grace_seconds=1)
        long_lived = [each for each in plan.everything if each.script.lasts_seconds is None]
        kinds: list[tuple[Act, ...]] = [
            (),
            (delete,),
            (delete,),
            (shorter,),
            (Act(ActKind.DELETE, grace_seconds=0),),
            (Act(ActKind.EVICT),),
        ]
        all_begin = all(
            each.native or (each.script.lasts_seconds is not None and each.script.code == 0)
            for each in plan.init_containers
        )
        # At the second delete, the kubelet has begun with the first one and the pod still exists.
        if (
            plan.grace_seconds > AGAIN_SECONDS
            and all_begin
            and any(each.script.is_slow(SLOW_SECONDS) for each in long_lived)
        ):
            again = Act(ActKind.DELETE, grace_seconds=self._random.choice((0, 1, 2, 8)), after_seconds=AGAIN_SECONDS)
            kinds += [(delete, again)] * 3
        # A container that fails again and again would restart in between.
        if long_lived and not any(_fails_again(plan, each) for each in plan.everything):
            kill = Act(ActKind.KILL, container=self._random.choice(long_lived).name)
            kinds += [(kill,), (kill,), (kill, delete)]
        return self._random.choice(kinds)


def _fails_again(plan: PodPlan, container: Container) -> bool:
    script = container.script
    if script.lasts_seconds is None:
        return False
    if container.native or plan.restart_policy == "Always":
        return container.native or container in plan.containers or script.code != 0
    return plan.restart_policy == "OnFailure" and script.code != 0
