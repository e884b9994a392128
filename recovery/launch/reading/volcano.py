"""Jobs of Volcano (`batch.volcano.sh/v1alpha1`)."""

from recovery.launch.fields import Field
from recovery.launch.reading.numbers import number, pods
from recovery.launch.reading.objects import annotations_of, name_of
from recovery.launch.reading.pods import pod_template
from recovery.launch.views import LifecyclePolicy, Task, VolcanoJob


def volcano_job(body: Field) -> VolcanoJob:
    """A document of kind Job of Volcano's group."""
    spec = body["spec"]
    return VolcanoJob(
        name=name_of(body),
        place=body.place,
        tasks=tuple(_task(each) for each in spec["tasks"].items()),
        plugins={name: each.texts() for name, each in spec["plugins"].fields()},
        min_available=pods(spec["minAvailable"], least=0),
        max_retry=number(spec["maxRetry"]),
        policies=tuple(_policy(each) for each in spec["policies"].items()),
        annotations=annotations_of(body["metadata"]),
    )


def _task(field: Field) -> Task:
    return Task(
        name=field["name"].text(),
        place=field.place,
        pods=pod_template(field["template"]),
        replicas=pods(field["replicas"], least=0),
        min_available=pods(field["minAvailable"], least=0),
        policies=tuple(_policy(each) for each in field["policies"].items()),
    )


def _policy(field: Field) -> LifecyclePolicy:
    written = (*field["events"].items(), *([field["event"]] if field["event"].there else ()))
    events = {each.text(): each.place for each in written if each.text()}
    code = field["exitCode"].whole()
    unread = not events and code is None and any(field[name].value for name in ("event", "events", "exitCode"))
    return LifecyclePolicy(field.place, field["action"].text(), events, code, unread)
