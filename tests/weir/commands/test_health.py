import pytest

from loadtest.peers.process import free_port
from tests.helpers.scripted_origin import Answer, ScriptedOrigin, dropped
from tests.weir.conftest import Weir


def test_a_server_that_is_well(weir: Weir, scripted: ScriptedOrigin) -> None:
    scripted.on("GET", "/readyz", Answer(200))
    assert weir("health", f"{scripted.url}/readyz") == (0, [], [])


@pytest.mark.parametrize(("answer", "said"), [(Answer(503), "503"), (dropped(), "closed")])
def test_a_server_that_is_not(
    weir: Weir, scripted: ScriptedOrigin, answer: Answer, said: str
) -> None:
    scripted.on("GET", "/readyz", answer)
    done = weir("health", f"{scripted.url}/readyz")
    assert (done.code, done.out) == (1, [])
    assert said in done.err[0]


def test_no_server_at_all(weir: Weir) -> None:
    assert weir("health", f"http://127.0.0.1:{free_port()}/readyz").code == 1


def test_no_url(weir: Weir) -> None:
    assert weir("health", "readyz").code == 2
