"""Paths of other servers, and those that they stand for here."""

import pytest

from protocol.paths import is_prefix, make_rename


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/v1/streams/a/b", "/v1/stream/a/b"),
        ("/v1/streams/a/snapshot/7", "/v1/stream/a/snapshot/7"),
        ("/other/api/%2e%2e", "/v1/stream/%2e%2e"),
        ("/v1/streams", "/v1/streams"),
        ("/v1/stream/a", "/v1/stream/a"),
        ("/ds/demo/s", "/ds/demo/s"),
        ("/demo/s", "/demo/s"),
        ("/v1/streams/../x", "/v1/stream/../x"),  # which is refused, as it is there
    ],
)
def test_a_prefix_stands_for_that_of_streams(path: str, meant: str) -> None:
    assert make_rename(["/v1/streams/", "/other/api/"], root_buckets=False)(path) == meant


@pytest.mark.parametrize("prefixes", [["/a/", "/a/b/"], ["/a/b/", "/a/"]])
def test_the_longest_prefix_counts_wherever_it_is_listed(prefixes: list[str]) -> None:
    rename = make_rename(prefixes, root_buckets=False)
    assert (rename("/a/b/x"), rename("/a/c/x")) == ("/v1/stream/x", "/v1/stream/c/x")


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/demo", "/ds/demo"),
        ("/demo/", "/ds/demo/"),
        ("/demo/hello", "/ds/demo/hello"),
        ("/demo/hello/snapshot/7", "/ds/demo/hello/snapshot/7"),
        ("/demo/streams", "/ds/demo/streams"),
        ("/ds/demo/s", "/ds/demo/s"),
        ("/ds", "/ds"),
        ("/v1/stream/a", "/v1/stream/a"),
        *((f"/{page}", f"/{page}") for page in ("healthz", "readyz", "metrics", "console")),
        ("/console/app.js", "/console/app.js"),
        ("/metrics2", "/ds/metrics2"),
        ("/Demo/x", "/Demo/x"),
        ("/de%6Do/x", "/de%6Do/x"),
        ("/favicon.ico", "/favicon.ico"),
        ("/", "/"),
        ("//demo/x", "//demo/x"),
    ],
)
def test_a_bucket_may_stand_at_the_root_where_no_page_of_ours_is(path: str, meant: str) -> None:
    assert make_rename([], root_buckets=True)(path) == meant


def test_nothing_is_renamed_by_default() -> None:
    rename = make_rename([], root_buckets=False)
    assert [rename(path) for path in ("/demo/x", "/v1/streams/a")] == ["/demo/x", "/v1/streams/a"]


@pytest.mark.parametrize("text", ["/v1/streams/", "/a/", "/a.b/c~d/"])
def test_these_can_be_prefixes(text: str) -> None:
    assert is_prefix(text)


@pytest.mark.parametrize(
    "text",
    ["", "/", "v1/", "/v1/streams", "//", "/a//", "/a b/", "/../", "/%2e/", "/a?/", "/a*/"]
    + [
        "/v1/",  # or streams could not be asked for by their own paths
        "/v1/stream/",
        "/v1/stream/x/",
        "/ds/",
        "/ds/buck/",
        "/console/",
        "/healthz/",
        "/metrics/x/",
    ],
)
def test_these_cannot(text: str) -> None:
    assert not is_prefix(text)
