"""The faults of a plan, put into HTTP by mitmproxy: `mitmdump -s loadtest/faults/addon.py`.

    mitmdump --mode reverse:http://127.0.0.1:4437 --listen-port 4438 -s loadtest/faults/addon.py
        --set weir_plan=plan.json --set weir_log=faults.jsonl

`loadtest.faults.plan` decides, this file only carries it out; bodies flow through as they come. The
plan's file is read again whenever it changes, so faults can be switched on and off. Each fault that
happened is one JSON line of the log.

Runs in mitmproxy's own environment; `loadtest.faults.proxy` starts it.
"""

import asyncio
import json
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from mitmproxy import ctx, http
from mitmproxy.net.http.http1 import assemble_request

sys.path.append(str(Path(__file__).resolve().parents[2]))  # nothing of ours is installed here

from loadtest.faults.plan import Asked, Fault, Kind, Plan, Planned, parse_plan  # noqa: E402

FAULT = "weir_fault"
NO_FAULT = Fault("", 0)
BREAK_NOW = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends RST
REPEAT_SECS = 30.0
HUGE_BYTES = 256 * 1024
NEEDED = (
    *("Core", "ErrorCheck", "NextLayer", "Proxyserver", "ScriptLoader", "TermLog", "TlsConfig"),
    "ClientPlayback",  # cannot be removed while it runs
)

Piece = Callable[[bytes], list[bytes]]


class Faults:
    def __init__(self) -> None:
        self._planned = Planned(Plan())
        self._stamp = (0, 0)  # of the file that the plan was read from

    def load(self, loader: Any) -> None:
        loader.add_option("weir_plan", str, "", "file with the plan of faults, in JSON")
        loader.add_option("weir_log", str, "", "file that gets a line for each fault")

    def running(self) -> None:
        self._follow_plan()
        # The others have nothing to do here, and asking them takes half of a request's time.
        addons = ctx.master.addons
        for addon in list(addons.chain):
            if type(addon).__name__ not in NEEDED:
                addons.remove(addon)

    # -- what mitmproxy calls --------------------------------------------------------------------

    async def requestheaders(self, flow: http.HTTPFlow) -> None:
        self._follow_plan()
        request = flow.request
        asked = Asked(request.method, request.path, "producer-id" in request.headers)
        fault = flow.metadata[FAULT] = self._planned.next_fault(asked) or NO_FAULT
        if fault.kind == Kind.DELAY:
            self._note(flow, fault)
            await asyncio.sleep(fault.ms / 1000)
        elif fault.kind == Kind.DROP:
            self._note(flow, fault)
            flow.kill()
        # These two wait for the whole request, the others let it flow.
        request.stream = fault.kind not in (Kind.ERROR, Kind.REPEAT)

    async def request(self, flow: http.HTTPFlow) -> None:
        fault = flow.metadata[FAULT]
        if fault.kind == Kind.ERROR:
            self._note(flow, fault)
            flow.response = http.Response.make(fault.status, b"a fault of the plan\n")
        elif fault.kind == Kind.REPEAT:
            self._note(flow, fault)
            await _send_once_more(flow)

    async def responseheaders(self, flow: http.HTTPFlow) -> None:
        response, fault = flow.response, flow.metadata[FAULT]
        response.stream = True
        match fault.kind:
            case Kind.STALL:
                await self._stall(flow, fault)
            case Kind.GARBLE:
                self._note(flow, fault)
                _garble(response, fault.broken)
            case Kind.RESET if not fault.after_bytes:
                self._note(flow, fault)
                _break(flow)
                flow.kill()
            case Kind.RESET | Kind.TRUNCATE:
                response.stream = self._cutter(flow, fault)

    # -- faults ----------------------------------------------------------------------------------

    async def _stall(self, flow: http.HTTPFlow, fault: Fault) -> None:
        if flow.response.headers.get("content-type", "").startswith("text/event-stream"):
            flow.response.stream = self._pauser(flow, fault)
            return
        self._note(flow, fault)
        await asyncio.sleep(fault.ms / 1000)

    def _pauser(self, flow: http.HTTPFlow, fault: Fault) -> Piece:
        """Stops to read from the server for a while, once, when enough has passed."""
        left = fault.after_bytes + 1

        def pass_on(data: bytes) -> list[bytes]:
            nonlocal left
            was, left = left, left - len(data)
            if was > 0 >= left and (transport := _transport(flow, flow.server_conn)):
                self._note(flow, fault)
                transport.pause_reading()
                asyncio.get_running_loop().call_later(fault.ms / 1000, _resume, transport)
            return [data] if data else []

        return pass_on

    def _cutter(self, flow: http.HTTPFlow, fault: Fault) -> Piece:
        """Passes on as much as the fault says, but never all, and ends the connection then."""
        told = flow.response.headers.get("content-length", "")
        left = min(fault.after_bytes, int(told) - 1) if told.isdigit() else fault.after_bytes
        chunked = "chunked" in flow.response.headers.get("transfer-encoding", "")
        done = False

        def pass_on(data: bytes) -> list[bytes]:
            nonlocal left, done
            if done:
                return []
            if data and len(data) <= left:
                left -= len(data)
                return [data]
            done = True
            self._note(flow, fault)
            frame = b"%x\r\n" % len(data) if chunked and data else b""
            _end(flow, frame + data[:left], reset=fault.kind == Kind.RESET)
            return []

        return pass_on

    # -- plan and log ----------------------------------------------------------------------------

    def _follow_plan(self) -> None:
        if not ctx.options.weir_plan:
            return
        path = Path(ctx.options.weir_plan)
        stat = path.stat()
        stamp = stat.st_ino, stat.st_mtime_ns
        if stamp != self._stamp:
            self._stamp = stamp
            self._planned.plan = parse_plan(path.read_text())

    def _note(self, flow: http.HTTPFlow, fault: Fault) -> None:
        if not ctx.options.weir_log:
            return
        request = flow.request
        query = {name: request.query[name] for name in ("offset", "live") if name in request.query}
        line = {
            "time": round(time.time(), 3),
            "place": self._planned.plan.place,
            "fault": fault.kind,
            "method": request.method,
            "path": request.path.partition("?")[0],
            **query,
            "number": fault.number,
            "request_id": request.headers.get("x-request-id", ""),
            **fault.details(),
        }
        with open(ctx.options.weir_log, "a") as log:
            log.write(json.dumps(line) + "\n")


async def _send_once_more(flow: http.HTTPFlow) -> None:
    """The whole request on a connection of its own; whatever is answered is lost."""
    copy = flow.request.copy()
    copy.headers["connection"] = "close"
    copy.stream = False
    with suppress(OSError, asyncio.TimeoutError):
        async with asyncio.timeout(REPEAT_SECS):
            reader, writer = await asyncio.open_connection(copy.host, copy.port)
            try:
                writer.write(assemble_request(copy))
                # A live answer may take its time; that it has begun is enough.
                await reader.read(1)
            finally:
                writer.close()


def _garble(response: http.Response, broken: str) -> None:
    headers = response.headers
    match broken:
        case "no-offset":
            headers.pop("stream-next-offset", None)
        case "bad-offset":
            headers["stream-next-offset"] = "no/offset?"
        case "bad-name":
            headers.fields += ((b"bad name", b"1"),)
        case "two-lengths":
            headers.fields += ((b"Content-Length", b"7"), (b"Content-Length", b"11"))
        case "huge":
            headers["x-huge"] = "x" * HUGE_BYTES
        case "bad-version":
            response.data.http_version = b"HTPT/1.1"


def _end(flow: http.HTTPFlow, last: bytes, *, reset: bool) -> None:
    transport = _transport(flow, flow.client_conn)
    if transport is None:
        return
    if last:
        transport.write(last)
    if reset:
        _break(flow)
    transport.close()


def _break(flow: http.HTTPFlow) -> None:
    """Whenever the client's connection closes from now on, it breaks."""
    if transport := _transport(flow, flow.client_conn):
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, BREAK_NOW)


def _transport(flow: http.HTTPFlow, connection: Any) -> Any:
    """Of one side of a flow; None when it is gone."""
    handler = ctx.master.addons.get("proxyserver").connections.get(flow.client_conn.id)
    io = handler.transports.get(connection) if handler else None
    return io.writer.transport if io and io.writer else None


def _resume(transport: Any) -> None:
    if not transport.is_closing():
        transport.resume_reading()


addons = [Faults()]
