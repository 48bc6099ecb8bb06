"""Envoy's own error responses, in the gateway's words: clients have one kind of error to handle."""

from collections.abc import Iterator

from gateway.rules.challenges import invalid_token, missing_token
from protocol.replies import RETRY_AFTER, Headers, Reply, problem, problem_of
from weir.edge.values import Json
from wire.http import Stamp

_MALFORMED = problem(400, "malformed-request", "The request is not valid HTTP.")
_REFUSALS = (
    (400, _MALFORMED),
    (501, _MALFORMED),  # an unknown Transfer-Encoding
    (426, problem(400, "http-version", "Use HTTP/1.1 or HTTP/2.")),
    (401, problem_of(invalid_token("malformed"))),
    (403, problem_of(invalid_token("malformed"))),  # for another audience
    (404, problem(404, "not-found", "Nothing exists at this path.")),
    (408, problem(408, "timeout", "The request took too long to arrive.")),
    (413, problem(413, "body-too-large", "The body is too large.")),
    (431, problem(431, "header-too-large", "The request head is too large.")),
    (500, problem(500, "internal-error", "Internal proxy error.")),
    (502, problem(502, "bad-gateway", "A gateway sent an invalid response.")),
    (503, problem(503, "unavailable", "No gateway is available.", RETRY_AFTER)),
    (504, problem(504, "timeout", "A gateway did not respond in time.")),
)


def local_replies(cors_origins: tuple[str, ...]) -> Json:
    stamp = Stamp(cors_origins)
    origins = () if stamp.any_origin else stamp.origins
    return {
        "mappers": [
            mapper
            for origin in (*origins, None)
            for mapper in _mappers(stamp.headers(origin), _from_origin(origin))
        ]
    }


def _mappers(stamp: Headers, filters: list[Json]) -> Iterator[Json]:
    """The first that matches is used."""
    without = _header("authorization", {"present_match": False})
    yield _mapper([_status(401), without, *filters], 401, problem_of(missing_token()), stamp)
    upgrade = _header("upgrade", {"present_match": True})
    yield _mapper([_status(403), upgrade, *filters], 403, _MALFORMED, stamp)
    for status, reply in _REFUSALS:
        yield _mapper([_status(status), *filters], status, reply, stamp)


def _mapper(filters: list[Json], status: int, reply: Reply, stamp: Headers) -> Json:
    headers = [h for h in (*reply.headers, *stamp) if h[0] not in ("Content-Type", "Server")]
    mapper: Json = {
        "filter": {"and_filter": {"filters": filters}} if len(filters) > 1 else filters[0],
        "body_format_override": {
            "text_format_source": {"inline_string": _as_format(reply.body.decode())},
            "content_type": dict(reply.headers)["Content-Type"],
        },
        "headers_to_add": [
            {
                "header": {"key": name, "value": _as_format(value)},
                "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
            }
            for name, value in headers
        ],
    }
    return mapper if status == reply.status else {**mapper, "status_code": reply.status}


def _as_format(text: str) -> str:
    return text.replace("%", "%%")


def _from_origin(origin: str | None) -> list[Json]:
    return [] if origin is None else [_header("origin", {"string_match": {"exact": origin}})]


def _header(name: str, matcher: Json) -> Json:
    return {"header_filter": {"header": {"name": name, **matcher}}}


def _status(status: int) -> Json:
    value = {"default_value": status, "runtime_key": f"weir.status_{status}"}
    return {"status_code_filter": {"comparison": {"op": "EQ", "value": value}}}
