"""Pod templates: containers, resources, volumes, tolerations."""

from collections.abc import Mapping
from decimal import Decimal

from recovery.launch.fields import Field
from recovery.launch.reading.objects import annotations_of, labels_of, strings
from recovery.launch.views import Container, EnvVar, ManifestToleration, Mount, PodTemplate, Resources, Volume


def pod_template(template: Field) -> PodTemplate:
    """`template`, with its metadata and its spec."""
    spec = template["spec"]
    return PodTemplate(
        place=spec.place,
        restart_policy=spec["restartPolicy"].text(),
        grace_seconds=spec["terminationGracePeriodSeconds"].whole(),
        containers=tuple(_container(each) for each in spec["containers"].items()),
        init_containers=tuple(_container(each) for each in spec["initContainers"].items()),
        tolerations=tuple(_toleration(each) for each in spec["tolerations"].items()),
        volumes=tuple(_volume(each) for each in spec["volumes"].items()),
        resource_claims=tuple(each["name"].text() for each in spec["resourceClaims"].items()),
        labels=labels_of(template["metadata"]),
        annotations=annotations_of(template["metadata"]),
        node_selector=strings(spec["nodeSelector"]),
        scheduler_name=spec["schedulerName"].text(),
        host_network=bool(spec["hostNetwork"].flag()),
        host_ipc=bool(spec["hostIPC"].flag()),
        shares_processes=bool(spec["shareProcessNamespace"].flag()),
        dns_policy=spec["dnsPolicy"].text(),
        active_deadline_seconds=spec["activeDeadlineSeconds"].whole(),
        priority_class=spec["priorityClassName"].text(),
    )


def env(field: Field) -> tuple[EnvVar, ...]:
    """`env` of a container, or of a trainer."""
    return tuple(_variable(each) for each in field.items())


def resources(field: Field) -> Resources | None:
    """The resources of a container. None: it has none."""
    if not field.there:
        return None
    return Resources(
        place=field.place,
        requests=_quantities(field["requests"]),
        limits=_quantities(field["limits"]),
        claims=tuple(each["name"].text() for each in field["claims"].items()),
        unquoted=tuple(
            quantity.place
            for part in ("requests", "limits")
            for _, quantity in field[part].fields()
            if isinstance(quantity.value, int | float) and not isinstance(quantity.value, bool)
        ),
    )


def _container(field: Field) -> Container:
    return Container(
        name=field["name"].text(),
        place=field.place,
        image=field["image"].text(),
        command=field["command"].texts(),
        args=field["args"].texts(),
        env=env(field["env"]),
        has_env_from=field["envFrom"].there,
        resources=resources(field["resources"]),
        mounts=tuple(_mount(each) for each in field["volumeMounts"].items()),
        termination_message_policy=field["terminationMessagePolicy"].text(),
        restart_policy=field["restartPolicy"].text(),
        has_readiness_probe=field["readinessProbe"].there,
    )


def _variable(field: Field) -> EnvVar:
    """A variable with neither a value nor a source is empty, as it is for the kubelet."""
    value = None if field["valueFrom"].there else field["value"].text()
    return EnvVar(field["name"].text(), field.place, value)


def _mount(field: Field) -> Mount:
    return Mount(field["name"].text(), field["mountPath"].text(), bool(field["readOnly"].flag()))


def _quantities(field: Field) -> Mapping[str, Decimal]:
    found = ((name, each.quantity()) for name, each in field.fields())
    return {name: amount for name, amount in found if amount is not None}


def _toleration(field: Field) -> ManifestToleration:
    return ManifestToleration(
        place=field.place,
        key=field["key"].text(),
        operator=field["operator"].text(),
        value=field["value"].text(),
        effect=field["effect"].text(),
        seconds=field["tolerationSeconds"].whole(),
    )


def _volume(field: Field) -> Volume:
    source = next((name for name, _ in field.fields() if name != "name"), "")
    return Volume(field["name"].text(), field.place, source, field["emptyDir"]["medium"].text())
