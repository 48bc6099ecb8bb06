"""What a client knows after one try."""

import pytest

from loadtest.peers.process import free_port
from loadtest.verify.doors import (
    CUT,
    REFUSED,
    RESET,
    TIMEOUT,
    Answer,
    Door,
    Request,
    open_doors,
)
from tests.helpers.scripted_origin import Answer as Scripted
from tests.helpers.scripted_origin import ScriptedOrigin

PATH = "/v1/stream/a"
NOBODY = Door("nobody", f"http://127.0.0.1:{free_port()}")


@pytest.mark.parametrize(
    ("status", "trouble", "outcome"),
    [
        (200, "", "ok"),
        (204, "", "ok"),
        (304, "", "refused"),
        (404, "", "refused"),
        (429, "busy", "refused"),
        (502, "502", "unknown"),
        (200, CUT, "unknown"),
        (0, REFUSED, "refused"),
        (0, RESET, "unknown"),
        (0, TIMEOUT, "unknown"),
    ],
)
def test_only_what_certainly_did_not_happen_is_refused(
    status: int, trouble: str, outcome: str
) -> None:
    assert Answer(NOBODY, None, 0.0, status=status, trouble=trouble).outcome == outcome


SCRIPTS = {
    "whole": (Scripted(200, {}, b"all"), 200, ""),
    "half": (Scripted(200, {}, b"x" * 999, cut_after=9), 200, CUT),
    "nothing": (Scripted(raw=b"", cut_after=0), 0, RESET),
    "late": (Scripted(200, {}, b"all", hold=20.0), 0, TIMEOUT),
    "broken": (Scripted(503, {}), 503, "503"),
}


@pytest.mark.parametrize("name", SCRIPTS)
async def test_how_a_try_ended_is_told_apart(name: str) -> None:
    script, status, trouble = SCRIPTS[name]
    with ScriptedOrigin() as origin:
        origin.on("GET", PATH, script)
        async with open_doors() as doors:
            answer = await doors.ask(Door("origin", origin.url), None, Request("a"), 2.0)
    assert (answer.status, answer.trouble) == (status, trouble)
    assert answer.ended >= answer.began


async def test_nobody_there_is_refused() -> None:
    async with open_doors() as doors:
        answer = await doors.ask(NOBODY, None, Request("a"))
    assert (answer.trouble, answer.outcome) == (REFUSED, "refused")


async def test_a_body_that_breaks_off_is_noticed_at_its_end() -> None:
    with ScriptedOrigin() as origin:
        origin.on("GET", PATH, Scripted(200, {}, b"x" * 999, cut_after=9))
        async with open_doors() as doors:
            door = Door("origin", origin.url)
            async with doors.open(door, None, Request("a")) as (answer, pieces):
                async for _ in pieces:
                    pass
    assert (answer.status, answer.trouble) == (200, CUT)
