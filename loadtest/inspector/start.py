"""`make inspect`: origin and gateway with mitmweb on both sides of the gateway, for people.

    client ──▶ mitmweb :8080 ──▶ gateway ──▶ mitmweb ──▶ origin          the page: :8081

Everything but mitmweb is a command of `weir`, as an operator would start it; the data and the
development key are those of `make run`.
"""

import argparse
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from loadtest.errors import RunFailedError, UnavailableError
from loadtest.faults.proxy import find_program
from loadtest.peers.process import Server, Start, free_port, run_process
from loadtest.peers.servers import run_weir, start_gateway, start_origin

ADDON = Path(__file__).with_name("addon.py")
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Inspector:
    url: str  # of the gateway, looked at
    page: str
    token: str


@contextmanager
def inspecting(data: Path, *, port: int = 0, web_port: int = 0) -> Iterator[Inspector]:
    """Ports of 0 are free ones; logs are kept beside the data."""
    data = data.absolute()
    logs, keys = data / "inspector", data / "keys"
    logs.mkdir(parents=True, exist_ok=True)
    port, web_port, back = port or free_port(), web_port or free_port(), free_port()
    run_weir("keys", str(keys))
    settings = {
        "DS_AUTH__JWKS": str(keys / "dev-jwks.json"),
        "DS_AUTH__ISSUER": "weir-dev",
        "DS_AUTH__AUDIENCE": "weir",
    }
    with ExitStack() as stack:

        def run(name: str, start: Start) -> Server:
            return stack.enter_context(run_process(start, logs / f"{name}.log"))

        origin = run("origin", start_origin(data))
        gateway = run("gateway", start_gateway(f"http://{LOOPBACK}:{back}", settings))
        mitmweb = [str(find_program("mitmweb")), "--web-host", LOOPBACK, "--no-web-open-browser"]
        mitmweb += ["--web-port", str(web_port), "--scripts", str(ADDON)]
        for mine, behind in ((back, origin.port), (port, gateway.port)):
            mitmweb.append(f"--mode=reverse:http://{LOOPBACK}:{behind}@{LOOPBACK}:{mine}")
        mitmweb.append(f"--set=weir_origin_port={back}")
        mitmweb.append(f"--set=confdir={logs / 'mitmproxy'}")
        run("mitmweb", Start(mitmweb, web_port))
        token = run_weir("token", "--key", str(keys / "dev-key.pem"), "--ttl", "12h")
        yield Inspector(f"http://{LOOPBACK}:{port}", f"http://{LOOPBACK}:{web_port}/", token)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Look at what goes through a gateway.")
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--port", type=int, default=8080, help="of the gateway (8080)")
    parser.add_argument("--web-port", type=int, default=8081, help="of the page (8081)")
    arguments = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with inspecting(
            arguments.data_dir, port=arguments.port, web_port=arguments.web_port
        ) as inspector:
            print(words(inspector), flush=True)
            signal.pause()
    except (UnavailableError, RunFailedError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    return 0


def words(inspector: Inspector) -> str:
    stream, bearer = f"{inspector.url}/v1/stream/demo", f"Authorization: Bearer {inspector.token}"
    sent = f"-H '{bearer}' -H 'Content-Type: application/json'"
    return "\n".join(
        [
            f"Look at it: {inspector.page}",
            "",
            "Give it something to show, in another terminal:",
            "",
            f"curl -i -X PUT {sent} {stream}",
            f"curl -i -X POST {sent} -d '{{\"hello\":1}}' {stream}",
            f"curl -N -H '{bearer}' '{stream}?offset=-1&live=sse'",
            "",
        ]
    )
