"""The text of a scrape: the same as prometheus_client's, shared by all clients, and made in slices."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import pytest
from prometheus_client import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_open_metrics
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from recovery.core.incident import phases
from recovery.core.model.facts import GroupKey
from recovery.core.model.ledger import Phase
from recovery.telemetry import exposition
from recovery.telemetry.exposition import FRESH_SECONDS, SLICE_SECONDS, Exposition, TextFormat, chosen_format
from recovery.telemetry.observer import Telemetry
from recovery.telemetry.pieces import Pieces
from tests.unit.telemetry.fleets import CountingStore, fleet, in_an_incident, put
from tests.unit.telemetry.world import Group, SetClock

TEXT, OPEN = TextFormat.PROMETHEUS, TextFormat.OPEN_METRICS


async def text_of(exposition: Exposition, text_format: TextFormat = TEXT) -> str:
    return b"".join((await exposition.body(text_format)).parts).decode()


class TickingClock(SetClock):
    """Each read of the time takes a millisecond, and each sleep is recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []
        self.meanwhile: Callable[[], None] = lambda: None

    def monotonic_seconds(self) -> float:
        self.seconds += 0.001
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.meanwhile()
        await asyncio.sleep(0)


class CountedPieces:
    """Counts how often it is exposed."""

    def __init__(self, of: Telemetry) -> None:
        self._of = of
        self.expositions = 0

    @property
    def terms(self) -> int:
        return self._of.terms

    @terms.setter
    def terms(self, _: int) -> None:
        raise NotImplementedError

    def pieces(self) -> Pieces:
        self.expositions += 1
        return self._of.pieces()


# --- the text --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("leads", [True, False])
async def test_it_says_what_prometheus_client_would_say(
    metrics: Telemetry, group: Group, clock: SetClock, leads: bool
) -> None:
    metrics.request_finished("list", "pods", "200", 0.02)
    metrics.permissions_missing([("delete", 'a "quoted" \\ resource\nof two lines')])
    metrics.admission(["recoverypolicies"])
    metrics.leadership_changed(leads=leads)
    group.fails()
    group.attempt()
    clock.seconds = 30
    made = Exposition(metrics, clock)
    for text_format, generate in ((TEXT, generate_latest), (OPEN, generate_open_metrics)):
        expected = generate(metrics.registry).decode()
        assert len(expected) > 10_000
        assert sorted((await text_of(made, text_format)).splitlines()) == sorted(expected.splitlines())
    assert (await text_of(made, OPEN)).endswith("# EOF\n")


async def test_each_family_comes_in_one_piece(metrics: Telemetry, clock: SetClock) -> None:
    text = await text_of(Exposition(metrics, clock))
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(set(names)) == len(names)
    assert len([*text_string_to_metric_families(text)]) == len(names)


@pytest.mark.parametrize(
    ("accept", "text_format"),
    [
        ("", TEXT),
        ("*/*", TEXT),
        ("text/plain;version=1.0.0;escaping=allow-utf-8;q=0.6,*/*;q=0.1", TEXT),
        ("application/openmetrics-text", OPEN),
        ("application/openmetrics-text;version=1.0.0;escaping=underscores;q=0.5,text/plain;q=0.2", OPEN),
    ],
)
def test_two_formats_are_served_whatever_else_is_asked_for(accept: str, text_format: TextFormat) -> None:
    assert chosen_format(accept) is text_format


# --- one for all -----------------------------------------------------------------------------------------------------


@pytest.fixture
def counted(metrics: Telemetry) -> CountedPieces:
    return CountedPieces(metrics)


async def test_those_who_ask_at_the_same_time_share_one(counted: CountedPieces, clock: SetClock) -> None:
    made = Exposition(counted, clock)
    bodies = await asyncio.gather(*(made.body(TEXT) for _ in range(8)))
    assert counted.expositions == 1
    assert all(body is bodies[0] for body in bodies)


async def test_so_do_those_who_ask_within_a_second(counted: CountedPieces, clock: SetClock) -> None:
    made = Exposition(counted, clock)
    await made.body(TEXT)
    clock.seconds += FRESH_SECONDS - 0.01
    await made.body(TEXT)
    assert counted.expositions == 1
    clock.seconds += 0.01
    await made.body(TEXT)
    assert counted.expositions == 2


async def test_each_format_is_made_once_and_not_at_the_same_time(metrics: Telemetry) -> None:
    clock = TickingClock()
    at_once: list[int] = []
    counted = CountedPieces(metrics)
    made = Exposition(counted, clock)
    clock.meanwhile = lambda: at_once.append(counted.expositions)
    await asyncio.gather(*(made.body(each) for each in (TEXT, OPEN) * 4))
    assert counted.expositions == 2
    assert at_once == sorted(at_once), "the second begins after the first has ended"
    assert {1, 2} == set(at_once)


async def test_one_who_goes_away_takes_it_from_no_one(counted: CountedPieces) -> None:
    made = Exposition(counted, TickingClock())
    first = asyncio.create_task(made.body(TEXT))
    second = asyncio.create_task(made.body(TEXT))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).size_bytes > 0
    assert counted.expositions == 1


async def test_what_was_exposed_in_another_term_is_not_given_again(
    counted: CountedPieces, metrics: Telemetry, clock: SetClock
) -> None:
    made = Exposition(counted, clock)
    assert "recovery_leader 1.0" in await text_of(made)
    metrics.leadership_changed(leads=False)
    assert "recovery_leader 0.0" in await text_of(made)


async def test_a_failure_is_that_of_all_who_wait_and_not_of_those_who_ask_later(
    counted: CountedPieces, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Exposition(counted, clock)
    with monkeypatch.context() as patched:
        patched.setattr(exposition, "_texts", lambda *_: 1 / 0)
        outcomes = await asyncio.gather(made.body(TEXT), made.body(TEXT), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ZeroDivisionError] * 2
    assert await text_of(made)


async def test_the_end_leaves_nothing_in_the_making(counted: CountedPieces) -> None:
    made = Exposition(counted, TickingClock())
    asking = asyncio.create_task(made.body(TEXT))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await made.end()
    with pytest.raises(asyncio.CancelledError):
        await asking


# --- in slices -------------------------------------------------------------------------------------------------------

JOBS = 200


@pytest.fixture
def store() -> CountingStore:
    made = fleet(jobs=JOBS, pods=2)
    for number, key in enumerate(made.keys()):
        put(made, key, in_an_incident(number, gpus=16, ranks=2))
    return made


async def test_the_event_loop_gets_turns_that_grow_in_number_with_the_jobs(store: CountingStore) -> None:
    turns: list[int] = []
    for jobs in (JOBS // 2, JOBS):
        clock = TickingClock()
        telemetry = Telemetry(clock=clock, version="1")
        store.snapshots = dict([*store.snapshots.items()][-jobs:])
        telemetry.follow(store)
        telemetry.leadership_changed(leads=True)
        await Exposition(telemetry, clock).body(TEXT)
        turns.append(len(clock.slept))
        assert all(seconds >= SLICE_SECONDS for seconds in clock.slept), "as long as the work took"
        assert max(clock.slept) < 2 * SLICE_SECONDS
    assert turns[1] > 20


async def test_the_first_scrape_of_a_leader_reads_one_job_at_a_time(store: CountingStore, clock: SetClock) -> None:
    telemetry = Telemetry(clock=clock, version="1")
    telemetry.follow(store)
    telemetry.leadership_changed(leads=True)
    read_at_once: list[int] = []
    before = 0
    for _ in telemetry.pieces():
        read_at_once.append(store.snapshots_read - before)
        before = store.snapshots_read
    assert (max(read_at_once), store.snapshots_read) == (1, JOBS)


@cache
def samples(text: str) -> Mapping[str, Sequence[Sample]]:
    """The samples by name. Parsed once: prometheus_client takes a second for a large fleet."""
    found: defaultdict[str, list[Sample]] = defaultdict(list)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name].append(sample)
    return found


def values(text: str, name: str) -> dict[tuple[str, ...], float]:
    return {tuple(sample.labels.values()): sample.value for sample in samples(text).get(name, ())}


def by_job(text: str, name: str) -> dict[str, float]:
    sums: dict[str, float] = {}
    for sample in samples(text).get(name, ()):
        job = sample.labels["job_name"]
        sums[job] = round(sums.get(job, 0.0) + sample.value, 3)
    return sums


async def test_what_changes_between_two_slices_is_all_in_the_next_exposition(store: CountingStore) -> None:
    """Each family shows a single moment, and so do families that are meant to be added up."""
    clock = TickingClock()
    telemetry = Telemetry(clock=clock, version="1")
    telemetry.follow(store)
    telemetry.leadership_changed(leads=True)
    keys: list[GroupKey] = []

    def moves_on() -> None:
        """With every turn of the loop another job enters its next phase, and an hour passes."""
        key = [*store.keys()][len(keys) % JOBS]
        keys.append(key)
        clock.seconds += 3600
        ledger = in_an_incident(len(keys), gpus=16, ranks=2)
        put(store, key, phases.enter(ledger, Phase.RESUMING, clock.now()))
        telemetry.ledger_written(key, ledger, store.groups[f"uid-{key.name}"].ledger)

    made = Exposition(telemetry, clock)
    await made.body(TEXT)  # it has read the jobs
    clock.seconds += FRESH_SECONDS
    clock.meanwhile = moves_on
    first, second = await text_of(made), await text_of(made)
    assert len(keys) > 20
    for text in (first, second):
        assert set(by_job(text, "recovery_job_phase").values()) == {1.0}
        reasons = by_job(text, "recovery_gpu_idle_seconds_total")
        assert reasons == by_job(text, "recovery_gpu_idle_by_class_seconds_total")
        fleet_wide = sum(values(text, "recovery_fleet_gpu_idle_seconds_total").values())
        assert fleet_wide == pytest.approx(sum(reasons.values()))
    assert "Resuming" not in {phase for (*_, phase), value in values(first, "recovery_job_phase").items() if value}, (
        "the facts of the first are those of its first step"
    )
    for name in ("recovery_gpu_idle_seconds_total", "recovery_fleet_gpu_idle_seconds_total"):
        before, after = values(first, name), values(second, name)
        assert all(after[labels] >= value for labels, value in before.items())
