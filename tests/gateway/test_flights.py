"""One fetch per key, shared by everyone who may share it, and by nobody else."""

import asyncio
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.flights import Flight, Flights, Key
from tests.helpers.parts import quiet, soon

A: Key = ("a", "-1")
SETTLED = "settled"


def settles(result: str) -> bool:
    return result.startswith(SETTLED)


@dataclass(eq=False)
class Trip:
    """A fetch that the test lets depart and land."""

    flight: Flight[str]
    land: asyncio.Future[str] = field(default_factory=asyncio.Future)
    leave: asyncio.Event = field(default_factory=asyncio.Event)


class Airport:
    """Flights, and every trip that they made."""

    def __init__(self, *, depart_at_once: bool = True) -> None:
        self.flights: Flights[str] = Flights(settles)
        self.trips: list[Trip] = []
        self.depart_at_once = depart_at_once

    async def fetch(self, flight: Flight[str]) -> str:
        trip = Trip(flight)
        self.trips.append(trip)
        if not self.depart_at_once:
            await trip.leave.wait()
        flight.depart()
        return await trip.land

    def board(self, key: Key = A) -> "asyncio.Task[tuple[str, Flight[str], bool]]":
        return asyncio.create_task(self.flights.join(key, self.fetch))

    async def trip(self, number: int) -> Trip:
        """The n-th trip, once it is under way."""
        await soon(lambda: len(self.trips) > number)
        await quiet()
        return self.trips[number]


async def results(riders: list["asyncio.Task[tuple[str, Flight[str], bool]]"]) -> set[str]:
    return {(await rider)[0] for rider in riders}


# -- who shares ----------------------------------------------------------------------------------


async def test_all_who_board_in_time_share_one_flight() -> None:
    airport = Airport(depart_at_once=False)
    riders = [airport.board() for _ in range(50)]
    trip = await airport.trip(0)
    trip.leave.set()
    trip.land.set_result("tail")
    answers = await asyncio.gather(*riders)
    assert {answer[0] for answer in answers} == {"tail"}
    assert [leads for _, _, leads in answers] == [True] + 49 * [False]
    assert (airport.flights.started, airport.flights.collapsed) == (1, 49)


async def test_who_comes_during_a_flight_takes_only_what_settles() -> None:
    airport = Airport()
    first = airport.board()
    trip = await airport.trip(0)
    late = [airport.board() for _ in range(20)]
    await quiet()
    trip.land.set_result("settled chunk")
    assert await results([first, *late]) == {"settled chunk"}
    assert airport.flights.started == 1


async def test_latecomers_share_the_next_flight() -> None:
    airport = Airport()
    first = airport.board()
    trip = await airport.trip(0)
    late = [airport.board() for _ in range(20)]
    await quiet()
    trip.land.set_result("old tail")
    (await airport.trip(1)).land.set_result("new tail")
    assert await results(late) == {"new tail"} and await results([first]) == {"old tail"}
    assert airport.flights.started == 2


async def test_the_next_flight_leaves_only_when_this_one_has_landed() -> None:
    airport = Airport()
    riders = [airport.board()]
    await airport.trip(0)
    riders += [airport.board() for _ in range(5)]
    await quiet()
    assert len(airport.trips) == 1 and len(airport.flights) == 1
    airport.trips[0].land.set_result("old")
    (await airport.trip(1)).land.set_result("new")
    await asyncio.gather(*riders)


async def test_who_boards_in_the_moment_of_landing_starts_anew() -> None:
    """The result is there, and its riders have not been told yet."""
    airport = Airport()
    first = airport.board()
    trip = await airport.trip(0)
    trip.land.set_result("old")
    trip.flight.task.add_done_callback(lambda _: late.append(airport.board()))
    late: list[asyncio.Task[tuple[str, Flight[str], bool]]] = []
    assert (await first)[0] == "old"
    (await airport.trip(1)).land.set_result("new")
    assert await results(late) == {"new"}


async def test_keys_have_flights_of_their_own() -> None:
    airport = Airport()
    riders = [airport.board(("a", "1")), airport.board(("a", "2")), airport.board(("b", "1"))]
    for number, rider in enumerate(riders):
        (await airport.trip(number)).land.set_result(str(number))
        assert (await rider)[0] == str(number)


async def test_a_result_that_needed_no_departure_answers_all_who_are_aboard() -> None:
    airport = Airport(depart_at_once=False)

    async def find_it_here(flight: Flight[str]) -> str:
        await asyncio.sleep(0)
        return "from nearby"

    riders = [asyncio.create_task(airport.flights.join(A, find_it_here)) for _ in range(5)]
    assert await results(riders) == {"from nearby"} and airport.flights.started == 1


# -- who leaves ----------------------------------------------------------------------------------


async def test_the_leader_may_leave() -> None:
    airport = Airport(depart_at_once=False)
    leader, follower = airport.board(), airport.board()
    trip = await airport.trip(0)
    leader.cancel()
    trip.leave.set()
    await quiet()
    trip.land.set_result("tail")
    assert (await follower)[0] == "tail" and leader.cancelled()
    assert airport.flights.started == 1


async def test_a_flight_that_all_have_left_is_cancelled_and_off_the_board() -> None:
    airport = Airport()
    riders = [airport.board() for _ in range(3)]
    trip = await airport.trip(0)
    for rider in riders:
        rider.cancel()
    await soon(lambda: trip.land.cancelled())
    assert len(airport.flights) == 0
    newcomer = airport.board()
    (await airport.trip(1)).land.set_result("tail")
    assert (await newcomer)[0] == "tail"


async def test_latecomers_keep_a_flight_in_the_air() -> None:
    airport = Airport()
    first = airport.board()
    trip = await airport.trip(0)
    late = airport.board()
    await quiet()
    first.cancel()
    await quiet()
    trip.land.set_result("settled")
    assert (await late)[0] == "settled"


# -- what fails ----------------------------------------------------------------------------------


async def test_who_boarded_in_time_gets_the_error_and_latecomers_one_more_flight() -> None:
    airport = Airport()
    first = airport.board()
    trip = await airport.trip(0)
    late = [airport.board() for _ in range(10)]
    await quiet()
    trip.land.set_exception(OSError("away"))
    with pytest.raises(OSError, match="away"):
        await first
    (await airport.trip(1)).land.set_exception(OSError("still away"))
    errors = await asyncio.gather(*late, return_exceptions=True)
    assert {str(error) for error in errors} == {"still away"}
    assert airport.flights.started == 2 and len(airport.flights) == 0


# -- what is purged ------------------------------------------------------------------------------


async def test_a_detached_flight_answers_its_riders_and_no_newcomer() -> None:
    airport = Airport()
    aboard = airport.board()
    trip = await airport.trip(0)
    airport.flights.detach("b")
    assert not trip.flight.detached
    airport.flights.detach("a")
    newcomer = airport.board()
    (await airport.trip(1)).land.set_result("new")
    assert (await newcomer)[0] == "new" and not airport.trips[1].flight.detached
    trip.land.set_result("settled, but old")
    assert (await aboard)[0] == "settled, but old" and trip.flight.detached


async def test_only_the_flights_that_are_meant_are_detached() -> None:
    airport = Airport()
    aboard = airport.board()
    trip = await airport.trip(0)
    airport.flights.detach("a", lambda asked: asked != trip.flight.key[1])
    assert not trip.flight.detached
    airport.flights.detach("a", lambda asked: asked == trip.flight.key[1])
    assert trip.flight.detached
    trip.land.set_result("settled")
    await aboard


async def test_the_landing_of_a_detached_flight_leaves_the_new_one_alone() -> None:
    airport = Airport()
    old = airport.board()
    trip = await airport.trip(0)
    airport.flights.detach_all()
    new = airport.board()
    second = await airport.trip(1)
    trip.land.set_result("old")
    await old
    assert airport.flights.is_open(A)
    second.land.set_result("new")
    await new
    assert len(airport.flights) == 0


# -- the law -------------------------------------------------------------------------------------


@dataclass
class World:
    """A stream whose tail grows, and an origin that looks at it when a request arrives there."""

    chance: random.Random
    tail: int = 0
    closed: bool = False
    out: int = 0
    most_out: int = 0

    async def pause(self) -> None:
        for _ in range(self.chance.randrange(6)):
            await asyncio.sleep(0)

    async def fetch(self, flight: Flight[str]) -> str:
        await self.pause()
        flight.depart()
        self.out += 1
        self.most_out = max(self.most_out, self.out)
        try:
            await self.pause()
            seen = f"{SETTLED if self.closed else 'tail'} {self.tail}"
            await self.pause()
            if self.chance.random() < 0.1:
                raise OSError
            return seen
        finally:
            self.out -= 1


async def live(world: World, steps: list[str]) -> None:
    flights: Flights[str] = Flights(settles)

    async def read() -> None:
        before, was_closed = world.tail, world.closed
        result, flight, _ = await flights.join(A, world.fetch)
        seen = int(result.split()[1])
        assert seen >= before, "answered from before its own question"
        assert settles(result) or not was_closed

    readers: list[asyncio.Task[None]] = []
    for step in steps:
        match step:
            case "read":
                readers.append(asyncio.create_task(read()))
            case "leave" if readers:
                world.chance.choice(readers).cancel()
            case "write" if not world.closed:
                world.tail += 1
            case "close":
                world.closed = True
        await world.pause()
    ended = await asyncio.gather(*readers, return_exceptions=True)
    expected = (type(None), OSError, asyncio.CancelledError)
    assert [end for end in ended if not isinstance(end, expected)] == []
    await quiet()
    assert len(flights) == 0 and world.out == 0


STEPS = st.lists(st.sampled_from(["read", "read", "read", "write", "leave", "close"]), max_size=40)


@settings(max_examples=150, deadline=None)
@given(STEPS, st.integers(0, 2**32).map(random.Random))
def test_nobody_is_answered_from_before_his_question_and_one_request_is_out(
    steps: list[str], chance: random.Random
) -> None:
    world = World(chance)
    asyncio.run(live(world, steps))
    assert world.most_out <= 1


def test_the_law_is_one_that_can_be_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flight that answers whoever waits for it, as generic proxies have it."""
    monkeypatch.setattr(Flight, "answers", lambda self, arrival: True)
    broken: list[int] = []
    for seed in range(200):
        try:
            asyncio.run(live(World(random.Random(seed)), ["read", "write", "read"] * 10))
        except AssertionError:
            broken.append(seed)
    assert broken


async def test_who_came_during_a_flight_does_not_wait_for_two_that_hang() -> None:
    airport = Airport()
    first = airport.board()
    await airport.trip(0)
    loop = asyncio.get_running_loop()
    until = loop.time() + 60
    late = asyncio.create_task(airport.flights.join(A, airport.fetch, until=until))
    await quiet()
    (await airport.trip(0)).land.set_exception(ValueError("the origin hangs"))
    with pytest.raises(ValueError):
        await first
    second = await airport.trip(1)  # it hangs as well
    [limit] = second.flight.limits
    assert limit.when() == until
    limit.reschedule(loop.time())
    with pytest.raises(TimeoutError):
        await late
    assert airport.trips[1].land.cancelled()  # nobody waits for it any more


async def test_who_came_during_a_flight_that_hangs_is_answered_in_time() -> None:
    airport = Airport()
    first = airport.board()
    trip = await airport.trip(0)
    until = asyncio.get_running_loop().time() + 0.05
    with pytest.raises(TimeoutError):
        await airport.flights.join(A, airport.fetch, until=until)
    trip.land.set_result("the first one waits as long as it takes")
    assert await results([first]) == {"the first one waits as long as it takes"}


async def test_a_response_that_begins_as_somebody_gives_up_is_no_error() -> None:
    airport = Airport()
    first = airport.board()
    trip = await airport.trip(0)
    loop = asyncio.get_running_loop()
    late = asyncio.create_task(airport.flights.join(A, airport.fetch, until=loop.time() - 1))
    await soon(lambda: any(limit.expired() for limit in trip.flight.limits))
    trip.flight.begin()
    with pytest.raises(TimeoutError):
        await late
    trip.land.set_result("for the first")
    assert await results([first]) == {"for the first"}


async def test_a_response_that_has_begun_may_take_its_time() -> None:
    airport = Airport()
    first = airport.board()
    trip = await airport.trip(0)
    now = asyncio.get_running_loop().time()
    waiting = asyncio.create_task(airport.flights.join(A, airport.fetch, until=now + 60))
    await quiet()
    trip.flight.begin()
    assert {limit.when() for limit in trip.flight.limits} == {None}
    too_late = asyncio.create_task(airport.flights.join(A, airport.fetch, until=now))
    await quiet()
    trip.land.set_result(f"{SETTLED} after a large body")
    assert await results([first, waiting, too_late]) == {f"{SETTLED} after a large body"}
