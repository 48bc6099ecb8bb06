import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway.devkeys import ensure_dev_key
from protocol.heads import parse_head
from tests.helpers.origin import LocalOrigin
from tests.helpers.rawhttp import Client
from tests.helpers.scripted_origin import Answer, ScriptedOrigin, dropped
from tests.weir.conftest import Weir
from weir.commands import produce
from weir.commands.produce import Step, judge

DONE = Answer(204)
STALE = {"Producer-Epoch": "9"}
GAP = {"Producer-Expected-Seq": "0", "Producer-Received-Seq": "4"}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce, "FIRST_PAUSE_SECS", 0.01)


def numbers(scripted: ScriptedOrigin) -> list[tuple[int, str]]:
    """(which epoch, number) of each append that came."""
    sent = [request.headers for request in scripted.find("POST")]
    epochs = sorted({int(each["producer-epoch"]) for each in sent})
    return [(epochs.index(int(each["producer-epoch"])), each["producer-seq"]) for each in sent]


def run(weir: Weir, scripted: ScriptedOrigin, answers: Sequence[Answer], *flags: str) -> int:
    scripted.on("POST", "/v1/stream/beat", answers)
    scripted.on("PUT", "/v1/stream/beat", Answer(201))
    url = f"{scripted.url}/v1/stream/beat"
    code: int = weir("produce", url, "--every", "1s", "--count", "1", *flags).code
    return code


@pytest.mark.parametrize(
    ("status", "headers", "step"),
    [
        (200, {}, Step.DONE),
        (204, {}, Step.DONE),
        (404, {}, Step.CREATE),
        (401, {}, Step.TOKEN),
        (403, STALE, Step.EPOCH),
        (403, {}, Step.NEVER),
        (409, GAP, Step.EPOCH),
        (409, GAP | {"Stream-Closed": "true"}, Step.NEVER),
        (409, {}, Step.NEVER),
        (429, {}, Step.AGAIN),
        (500, {}, Step.AGAIN),
        (503, {}, Step.AGAIN),
        (400, {}, Step.NEVER),
        (413, {}, Step.NEVER),
    ],
)
def test_what_an_answer_means(status: int, headers: dict[str, str], step: Step) -> None:
    named = {name.lower(): value for name, value in headers.items()}
    assert judge(status, parse_head(named)) is step


def test_a_stream_is_made_and_gets_its_messages(
    weir: Weir, origin: LocalOrigin, client: Client
) -> None:
    url = f"http://127.0.0.1:{origin.port}/v1/stream/beat"
    done = weir("produce", url, "--count", "2", "--id", "me")
    assert (done.code, done.err) == (0, [])
    messages = json.loads(client.read("beat").body)
    assert [(each["producer"], each["beat"]) for each in messages] == [("me", 1), ("me", 2)]
    assert weir("produce", url, "--count", "1", "--id", "me").code == 0  # a new epoch
    assert len(json.loads(client.read("beat").body)) == 3


def test_a_message_keeps_its_number_until_it_is_known(weir: Weir, scripted: ScriptedOrigin) -> None:
    assert run(weir, scripted, [dropped(), Answer(503), dropped(reset=True), DONE]) == 0
    assert numbers(scripted) == [(0, "0")] * 4
    assert len({request.body for request in scripted.find("POST")}) == 1


@pytest.mark.parametrize("answer", [Answer(409, GAP), Answer(403, STALE)])
def test_a_stream_that_counts_otherwise_gets_a_new_epoch(
    weir: Weir, scripted: ScriptedOrigin, answer: Answer
) -> None:
    assert run(weir, scripted, [answer, DONE]) == 0
    assert numbers(scripted) == [(0, "0"), (1, "0")]


def test_a_refusal_for_good_ends_it(weir: Weir, scripted: ScriptedOrigin) -> None:
    assert run(weir, scripted, [Answer(403)]) == 4
    assert scripted.count("POST") == 1


def test_tokens_are_signed_with_a_key(weir: Weir, scripted: ScriptedOrigin, tmp_path: Path) -> None:
    key, _ = ensure_dev_key(tmp_path)
    assert run(weir, scripted, [Answer(401), DONE], "--key", str(key)) == 0
    assert all(sent.headers["authorization"].startswith("Bearer ey") for sent in scripted.requests)
