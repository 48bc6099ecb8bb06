"""`make docs`: the five flows of docs/architecture.md as pictures.

What they say is here, as data; how they look is in `pages.lanes`. Times and sizes in them are the
defaults of configs/default.toml.
"""

import sys
from pathlib import Path

from pages.lanes import Band, Case, Does, Either, Kind, Lane, Picture, Says, draw

FOLDER = Path(__file__).resolve().parent.parent / "docs/images"
PLAIN, SPARED, SHARED, ASIDE = Kind
ALONE = "answered without asking the origin"
ONCE = "once, for everybody"
BEHIND = "behind the answer"

APPEND = Picture(
    title="An append",
    about="A browser's POST goes through Envoy and the gateway to the origin, which judges it, "
    "writes it with all others that wait by one fdatasync, publishes it, wakes who waits and "
    "answers.",
    lanes=(
        Lane("Browser"),
        Lane("Envoy", "TLS, HTTP/2"),
        Lane("Gateway", "door, passes"),
        Lane("Service", "event loop"),
        Lane("Journal", "writer's thread"),
    ),
    bands=(Band("Service", "Journal", "origin"),),
    steps=(
        Says("Browser", "Envoy", "POST, with a token"),
        Does("Envoy", "a first look at path, headers and token"),
        Says("Envoy", "Gateway", "by a hash of the stream"),
        Does("Gateway", "path, token, scope, rate"),
        Says("Gateway", "Service", "passed on, nothing is stored"),
        Does("Service", "judged by the staged state, and staged, in one step"),
        Says("Service", "Journal", "a batch: all that wait, of all streams", SHARED),
        Does("Journal", "one write, one fdatasync", SHARED),
        Says("Journal", "Service", "it is on the disk"),
        Does("Service", "published: the tail that readers see moves"),
        Says("Service", "Gateway", "a waiting long-poll wakes", SHARED),
        Says("Service", "Gateway", "204, Stream-Next-Offset"),
        Does("Gateway", "what is stored of the tail is dropped"),
        Says("Gateway", "Browser", "204, Stream-Next-Offset"),
    ),
    legend={SHARED: ONCE},
)

CATCH_UP = Picture(
    title="A cached catch-up",
    about="A read is authorised before the cache is looked at. A fresh chunk is answered at once, "
    "a stale one too while it is revalidated, and for what is missing everybody joins one request "
    "to the origin.",
    lanes=(
        Lane("Readers", "any number", crowd=True),
        Lane("Door", "path, token, scope"),
        Lane("Chunks", "cache, flights"),
        Lane("Origin"),
    ),
    bands=(Band("Door", "Chunks", "gateway"),),
    steps=(
        Says("Readers", "Door", "GET ?offset=…, each with a token", many=True),
        Does(
            "Door", "may this token read this stream? If not, 401 or 403 and no look at the cache"
        ),
        Says("Door", "Chunks", "stream and offset: the user is in no key"),
        Either(
            (
                Case(
                    "hit",
                    "a chunk below the tail, stored less than 60 s ago",
                    (
                        Says("Chunks", "Readers", "200 and the stored bytes", SPARED, many=True),
                        Says("Chunks", "Readers", "304 for who sent the ETag", SPARED),
                    ),
                    SPARED,
                ),
                Case(
                    "stale",
                    "for 300 s more; for a day while the origin is away",
                    (
                        Says(
                            "Chunks",
                            "Readers",
                            "200 and the stored bytes, at once",
                            SPARED,
                            many=True,
                        ),
                        Says("Chunks", "Origin", "If-None-Match, one at a time", ASIDE),
                        Says("Origin", "Chunks", "304: fresh again", ASIDE),
                    ),
                    SPARED,
                ),
                Case(
                    "miss, revalidated",
                    "not stored; or it reached the tail, and is confirmed for every read",
                    (
                        Does("Chunks", "all who ask join one flight", SHARED),
                        Says(
                            "Chunks",
                            "Origin",
                            "one GET; If-None-Match where something is stored",
                            SHARED,
                        ),
                        Says("Origin", "Chunks", "200 to the chunk's end or the tail; or 304"),
                        Does(
                            "Chunks",
                            "stored: what never changes, in Redis too; a tail, to be confirmed",
                        ),
                        Says("Chunks", "Readers", "200, the same bytes for all", SHARED, many=True),
                    ),
                    SHARED,
                ),
            )
        ),
    ),
    legend={SPARED: ALONE, SHARED: ONCE, ASIDE: BEHIND},
)

LONG_POLL = Picture(
    title="A collapsed long-poll",
    about="A thousand readers park at the hub of a stream. The hub has one long-poll open at the "
    "origin; one append wakes it, and all readers get the same bytes and the same cursor.",
    lanes=(
        Lane("Readers", "× 1,000", crowd=True),
        Lane("Hub", "of the stream"),
        Lane("Origin"),
        Lane("Writer"),
    ),
    bands=(Band("Hub", "Hub", "gateway"),),
    steps=(
        Says("Readers", "Hub", "?live=long-poll&offset=17, each with a token", many=True),
        Does("Hub", "each is checked, then parked: a connection and a timer, no task"),
        Says("Hub", "Origin", "one long-poll at 17", SHARED),
        Does("Origin", "sleeps on the stream"),
        Says("Writer", "Origin", "an append, by way of any gateway"),
        Says("Origin", "Hub", "200: bytes, next offset 42", SHARED),
        Does(
            "Hub", "head, body and cursor are made once; log lines follow when all have it", SHARED
        ),
        Says("Hub", "Readers", "200: the same bytes, the same cursor", SHARED, many=True),
        Says("Readers", "Hub", "?offset=42 and that cursor", many=True),
        Says("Hub", "Origin", "one long-poll at 42", SHARED),
        Either(
            (
                Case(
                    "late",
                    "a reader comes back to 17 when the hub has moved on",
                    (Says("Hub", "Readers", "200 from the hub's window", SPARED),),
                    SPARED,
                ),
                Case(
                    "nothing new",
                    "for 25 s, by the reader's own timer",
                    (Says("Hub", "Readers", "204, go on from where you are", SPARED),),
                    SPARED,
                ),
                Case(
                    "token over",
                    "it ended while its reader was parked",
                    (Says("Hub", "Readers", "401 instead of the data"),),
                ),
            )
        ),
    ),
    legend={SPARED: ALONE, SHARED: ONCE},
)

SSE = Picture(
    title="SSE fan-out",
    about="An SSE reader first gets what is stored, chunk by chunk, then joins the stream's hub. "
    "Each event is encoded once and written to everybody. Connections end after about a minute, "
    "with their token, or when their reader is too slow.",
    lanes=(
        Lane("Readers", "× 1,000", crowd=True),
        Lane("Hub", "of the stream"),
        Lane("Chunks", "cache, flights"),
        Lane("Origin"),
    ),
    bands=(Band("Hub", "Chunks", "gateway"),),
    steps=(
        Says("Readers", "Hub", "?live=sse&offset=-1, each with a token", many=True),
        Says("Hub", "Chunks", "replay: as a catch-up, for each reader"),
        Says(
            "Chunks",
            "Readers",
            "stored chunks as events, the next when the last is taken",
            SPARED,
            many=True,
        ),
        Does("Hub", "at the tail: attached, and the replay's task ends"),
        Says("Hub", "Origin", "one long-poll, whatever the number of readers", SHARED),
        Says("Origin", "Hub", "200: an append's bytes", SHARED),
        Does("Hub", "data and control event, encoded once", SHARED),
        Says("Hub", "Readers", "written to everybody; nobody waits for another", SHARED, many=True),
        Either(
            (
                Case(
                    "rotated",
                    "after 60 s, a tenth more or less, so that a crowd spreads",
                    (
                        Says(
                            "Hub",
                            "Readers",
                            "a clean end; the client comes back at its last offset",
                        ),
                    ),
                ),
                Case(
                    "token-expired",
                    "if the token ends first",
                    (Says("Hub", "Readers", "event: end, with the reason"),),
                ),
                Case(
                    "slow",
                    "more than 1 MiB is waiting to be taken",
                    (Says("Hub", "Readers", "the connection is cut; the others notice nothing"),),
                ),
            )
        ),
    ),
    legend={SPARED: "from the cache, where it has the chunk", SHARED: ONCE},
)

LOG = Picture(
    title="A log line to Spark",
    about="A finished request becomes a line in a bounded memory; a thread writes it to the file "
    "of its hour. Spark takes new lines, cleans or quarantines them, makes tables beside the state "
    "that it reads from the streams, and draws a report.",
    lanes=(
        Lane("Requests", "event loop"),
        Lane("Log", "writer's thread"),
        Lane("Files", "one an hour"),
        Lane("Spark", "weir report"),
        Lane("Tables", "Parquet"),
        Lane("Origin", "streams"),
    ),
    bands=(Band("Requests", "Log", "gateway"),),
    steps=(
        Does("Requests", "a response has ended: an AccessRecord, encoded at once"),
        Says("Requests", "Log", "at most 100,000 lines wait"),
        Does("Requests", "no room: dropped and counted, never waited for", ASIDE),
        Says("Log", "Files", "each 0.1 s, one write", SHARED),
        Says("Files", "Spark", "whole lines that are new"),
        Does("Spark", "each is clean, a copy, or quarantined with a reason"),
        Says("Spark", "Tables", "requests, quarantine"),
        Says("Spark", "Tables", "sums of the days that changed"),
        Says("Spark", "Origin", "what is new in the streams that the log names?"),
        Says("Origin", "Spark", "messages, snapshots"),
        Says("Spark", "Tables", "state, and traffic beside it"),
        Does("Tables", "each change is a new generation; one link moves", SHARED),
        Says("Tables", "Spark", "figures"),
        Does("Spark", "report.html, one file that needs nothing else"),
    ),
    legend={SHARED: "many at once, in one step", ASIDE: "when the disk cannot follow"},
)

PICTURES = {
    "flow-append.svg": APPEND,
    "flow-catchup.svg": CATCH_UP,
    "flow-longpoll.svg": LONG_POLL,
    "flow-sse.svg": SSE,
    "flow-log.svg": LOG,
}


def main() -> int:
    drawn = {FOLDER / name: draw(picture) for name, picture in PICTURES.items()}
    if "--check" not in sys.argv:
        for path, text in drawn.items():
            path.write_text(text)
        return 0
    old = [
        path.name for path, text in drawn.items() if not path.exists() or path.read_text() != text
    ]
    if old:
        print(f"not what the code draws: {', '.join(old)}: run `make docs`", file=sys.stderr)
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main())
