"""The checker can fail: each bug that is planted before a sound gateway is found, by its name."""

import io
from pathlib import Path

import pytest

from loadtest.peers.tokens import AUDIENCE, ISSUER
from loadtest.verify.check import Findings, check_history
from loadtest.verify.doors import Door
from loadtest.verify.history import Recorder, Run, parse_lines
from loadtest.verify.keyring import Keyring
from loadtest.verify.plan import Step
from loadtest.verify.run import STREAMS, Crowd, campaign
from loadtest.verify.timeline import sort_history
from tests.conftest import StartOrigin
from tests.helpers.gateway import LocalGateway, make_gateway_config
from tests.verify.liar import (
    DroppedEvent,
    LeakedScope,
    Liar,
    Lie,
    LostAcknowledgement,
    SilentHub,
    StaleChunk,
)

SECONDS = 2.5
CROWD = Crowd(producers=1, readers=1, pause_s=0.1)
RECREATED = [Step(1.5, "recreate", stream) for stream in STREAMS if "/a/" in stream]


async def run_before(gateway: LocalGateway, origin_url: str, lie: Lie, keys: Keyring) -> Findings:
    """A short run whose clients all meet the liar; what its history shows when it is read again."""
    written = io.BytesIO()
    recorder = Recorder(written)
    async with Liar(gateway.url, lie) as liar:
        await campaign(
            Run(1, SECONDS, "", [], RECREATED),
            CROWD,
            recorder,
            keys,
            [Door("front", liar.url)],
            Door("origin", origin_url),
        )
    return check_history(sort_history(parse_lines(io.BytesIO(written.getvalue()))))


@pytest.mark.parametrize(
    ("lie", "name"),
    [
        (Lie(), None),
        (LostAcknowledgement(), "lost-acknowledgement"),
        (StaleChunk(), "stale-incarnation"),
        (DroppedEvent(), "gap"),
        (LeakedScope(), "leaked-scope"),
        (SilentHub(), "undelivered"),
    ],
    ids=[
        "none",
        "lost-acknowledgement",
        "stale-chunk",
        "dropped-event",
        "leaked-scope",
        "silent-hub",
    ],
)
async def test_a_planted_bug_is_found(
    start_origin: StartOrigin,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lie: Lie,
    name: str | None,
) -> None:
    if name is not None:  # the last look would insist on the truth
        monkeypatch.setattr("loadtest.verify.lastlook.PATIENCE_SECS", 0.5)
    keys = Keyring()
    jwks = tmp_path / "jwks.json"
    jwks.write_text(keys.jwks())
    origin = start_origin(storage={"chunk_bytes": 2048})
    origin_url = f"http://127.0.0.1:{origin.port}"
    config = make_gateway_config(
        origin_url, jwks_path=jwks, auth={"issuer": ISSUER, "audience": AUDIENCE}
    )
    with LocalGateway(config) as gateway:
        findings = await run_before(gateway, origin_url, lie, keys)
    found = {violation.name for violation in findings.violations}
    if name is None:
        assert (findings.violations, findings.missing) == ([], [])
    else:
        assert lie.told, "the run was over before the bug showed"
        assert name in found
