"""Named pods: cases that are too rare to be drawn."""

from tests.real_nodes.walks.plan import Act, ActKind, Container, PodPlan, Script

_RUNS = Script()
_DELETE = Act(ActKind.DELETE)
_BROKEN = Container("sidecar", Script(lasts_seconds=3, code=1), native=True)
_SIDECAR = Container("sidecar", _RUNS, native=True)
_MAIN = Container("main", _RUNS)

PODS = (
    PodPlan(
        "a-finished-helper-and-a-broken-sidecar",
        "OnFailure",
        3,
        (_BROKEN,),
        (_MAIN, Container("helper", Script(lasts_seconds=1))),
        (_DELETE,),
    ),
    PodPlan(
        "a-finished-helper-and-a-broken-sidecar-never",
        "Never",
        3,
        (_BROKEN,),
        (_MAIN, Container("helper", Script(lasts_seconds=1))),
        (_DELETE,),
    ),
    PodPlan("a-grace-of-years", "Never", 2**31, (_SIDECAR,), (_MAIN,), (_DELETE,)),
    PodPlan("a-grace-beyond-all-dates", "Never", 2**62, (), (_MAIN,), (_DELETE,)),
    PodPlan(
        "a-shorter-grace-comes-too-late",
        "Never",
        14,
        (),
        (Container("main", Script(leaves_seconds=9.0)),),
        # If the kubelet has not begun with the first delete, as may happen for a second or two under load, it takes the
        # shorter grace.
        (_DELETE, Act(ActKind.DELETE, grace_seconds=1, after_seconds=4.0)),
    ),
    PodPlan(
        "a-sidecar-has-time-of-its-own-when-the-grace-is-over",
        "Never",
        3,
        (Container("sidecar", Script(leaves_seconds=1.0), native=True),),
        (Container("main", Script(term_code=None)),),
        (_DELETE,),
    ),
    PodPlan(
        "one-that-ends-by-itself-keeps-its-grace",
        "Never",
        6,
        (Container("sidecar", Script(leaves_seconds=4.0), native=True),),
        (_MAIN,),
        (Act(ActKind.KILL, container="main"), Act(ActKind.DELETE, grace_seconds=1, after_seconds=0.5)),
    ),
)
