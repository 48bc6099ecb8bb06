"""Buckets whose streams are in many shards: counts, listings, and deletions against creations."""

from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from origin.bucketroutes import listed
from origin.cluster import answering
from origin.cluster.answering import Answering
from origin.cluster.listings import merged
from origin.cluster.peers import Peers
from origin.cluster.questions import Count, HasBucket, IsEmpty, Listed, Page, Question
from origin.lifetimes import Lifetimes
from origin.staging import Staging
from origin.streams import Stream
from protocol.clustermap import shard_of
from tests.extension.conftest import BUCKET, Api, problem
from tests.helpers.cluster import SHARDS, LocalCluster
from tests.helpers.rawhttp import Response
from tests.origin.cluster.conftest import StartCluster
from tests.origin.cluster.test_placing import Held, away

TEXT = {"Content-Type": "text/plain"}
HOME = shard_of(BUCKET, SHARDS)


def at(cluster: LocalCluster, node_id: str, method: str, path: str) -> Response:
    with cluster.origins[node_id].connect() as connection:
        return connection.request(method, path, TEXT)


def somewhere_else(cluster: LocalCluster) -> str:
    """The path of a stream of the bucket at another node than the bucket's."""
    names = (f"{BUCKET}/s{n}" for n in range(1000))
    return next(name for name in names if cluster.owner_of(name) != cluster.owner_of(BUCKET))


# -- counts and listings ---------------------------------------------------------------------------


def test_a_listing_is_of_all_shards_in_order(cluster: LocalCluster, api: Api) -> None:
    names = sorted(f"{n:02}" for n in range(40))
    for name in names:
        api.create(f"{BUCKET}/{name}", body=name.encode())
    assert len({shard_of(f"{BUCKET}/{name}", SHARDS) for name in names}) > 8
    for node_id in "abc":
        found = at(cluster, node_id, "GET", f"{BUCKET}/streams").json()
        assert [row["stream_id"] for row in found["streams"]] == names
        assert (found["stream_count"], found["has_more"]) == (40, False)
        assert {row["tail_offset"] for row in found["streams"]} == {2}
        assert at(cluster, node_id, "GET", BUCKET).json() == {"bucket_id": "buck", "streams": 40}


@pytest.mark.parametrize("limit", [1, 7, 39, 40, 41])
def test_pages_have_every_stream_once(cluster: LocalCluster, api: Api, limit: int) -> None:
    names = [f"{'ab'[n % 2]}{n:02}" for n in range(40)]
    for name in names:
        api.create(f"{BUCKET}/{name}")
    found: list[str] = []
    query = f"?limit={limit}&prefix=a"
    while True:
        page = api.listing(query=f"{query}&after={found[-1]}" if found else query)
        found += [row["stream_id"] for row in page["streams"]]
        assert len(page["streams"]) <= limit
        if not page["has_more"]:
            break
    assert found == sorted(name for name in names if name.startswith("a"))


def test_a_node_makes_rows_only_for_the_first_names_of_all_its_shards(
    cluster: LocalCluster, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = sorted(f"{n:02}" for n in range(40))
    for name in names:
        api.create(f"{BUCKET}/{name}")
    made: list[str] = []

    def noted(name: str, stream: Stream) -> dict[str, object]:
        made.append(name)
        return listed(name, stream)

    monkeypatch.setattr(answering, "listed", noted)
    page = api.listing(query="?limit=2")
    assert ([row["stream_id"] for row in page["streams"]], page["has_more"]) == (names[:2], True)
    of_nodes = [[n for n in names if cluster.owner_of(f"{BUCKET}/{n}") == id_] for id_ in "abc"]
    assert sorted(made) == sorted(name for mine in of_nodes for name in mine[:2])


rows = st.lists(st.sets(st.text("abc", min_size=1, max_size=3)), max_size=4)


@given(rows, st.integers(1, 5))
def test_merged_pages_are_a_page_of_everything(parts: list[set[str]], limit: int) -> None:
    everything = sorted(name for part in parts for name in part)
    pages = [
        Listed(sorted(part)[:limit], [{"id": n} for n in sorted(part)[:limit]], len(part) > limit)
        for part in parts
    ]
    found = merged(pages, limit)
    assert (found.names, found.has_more) == (everything[:limit], len(everything) > limit)
    assert [row and row["id"] for row in found.rows] == found.names


def test_no_count_and_no_page_without_all_shards(start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    assert at(cluster, "a", "PUT", BUCKET).status == 201
    missing = next(n for n in range(SHARDS) if n != HOME)
    away(cluster, missing)
    for path in (BUCKET, f"{BUCKET}/streams"):
        assert problem(at(cluster, "b", "GET", path)) == (503, "no-owner")
    cluster.move(missing, "b")
    for path in (BUCKET, f"{BUCKET}/streams"):
        assert at(cluster, "c", "GET", path).status == 200


def test_no_count_from_a_node_without_its_lease(start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    assert at(cluster, "a", "PUT", BUCKET).status == 201
    other = next(node_id for node_id in "abc" if node_id != cluster.owner_of(BUCKET))
    cluster.nodes[other].lease_holds = False
    assert problem(at(cluster, "a", "GET", BUCKET)) == (503, "no-owner")
    assert problem(at(cluster, "a", "DELETE", BUCKET)) == (503, "no-owner")
    cluster.nodes[other].lease_holds = True
    assert at(cluster, "a", "GET", BUCKET).status == 200


# -- deletions -------------------------------------------------------------------------------------


def test_a_bucket_that_stays_disturbs_no_creation(cluster: LocalCluster, api: Api) -> None:
    """Who may not delete it must not be able to hold up others by trying."""
    for number in range(20):
        api.create(f"{BUCKET}/{number}")

    def permits() -> list[int]:
        return [cluster.call(n, lambda shard: shard.permits.current) for n in range(SHARDS)]

    before = permits()
    assert problem(at(cluster, "a", "DELETE", BUCKET))[0] == 409
    assert permits() == before


def test_a_bucket_with_a_stream_anywhere_stays(cluster: LocalCluster, api: Api) -> None:
    path = somewhere_else(cluster)
    api.create(path)
    for node_id in "abc":
        assert problem(at(cluster, node_id, "DELETE", BUCKET)) == (409, "bucket-not-empty")
    api("DELETE", path)
    assert api("DELETE", BUCKET).status == 204
    for node_id in "abc":
        assert problem(at(cluster, node_id, "PUT", path)) == (404, "bucket-not-found")
        assert problem(at(cluster, node_id, "GET", BUCKET)) == (404, "bucket-not-found")


def test_a_bucket_is_kept_while_an_owner_is_away(start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    assert at(cluster, "a", "PUT", BUCKET).status == 201
    missing = next(n for n in range(SHARDS) if n != HOME)
    away(cluster, missing)
    assert problem(at(cluster, "a", "DELETE", BUCKET)) == (503, "no-owner")
    path = next(
        name
        for name in (f"{BUCKET}/s{n}" for n in range(99))
        if shard_of(name, SHARDS) not in (missing, HOME)
    )
    assert at(cluster, "b", "PUT", path).status == 201  # it is open again
    cluster.move(missing, "c")
    assert problem(at(cluster, "a", "DELETE", BUCKET)) == (409, "bucket-not-empty")


def test_a_creation_waits_for_a_deletion(
    cluster: LocalCluster, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = somewhere_else(cluster)
    held = Held(monkeypatch, Lifetimes, "delete")
    asked = Held(monkeypatch, Answering, "answer")
    asked.is_held = lambda self, question: isinstance(question, HasBucket)
    with ThreadPoolExecutor(2) as pool:
        deletion = pool.submit(at, cluster, "a", "DELETE", BUCKET)
        held.wait_for_it()
        creation = pool.submit(at, cluster, "b", "PUT", path)
        asked.wait_for_it()
        asked.let_go()
        assert at(cluster, "b", "GET", path).status == 404  # what was asked is asked by now
        held.let_go()
        assert deletion.result().status == 204
        assert problem(creation.result()) == (404, "bucket-not-found")
    assert cluster.where_is(path) == []


def test_a_creation_that_asked_before_a_deletion_asks_again(
    cluster: LocalCluster, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows that the bucket exists, and is slow to create its stream."""
    path = somewhere_else(cluster)
    held = Held(monkeypatch, Peers, "ask", after=True)
    held.is_held = lambda self, shard, question, kind: isinstance(question, HasBucket)
    with ThreadPoolExecutor(1) as pool:
        creation = pool.submit(at, cluster, cluster.owner_of(path), "PUT", path)
        held.wait_for_it()
        assert at(cluster, "a", "DELETE", BUCKET).status == 204
        held.let_go()
        assert problem(creation.result()) == (404, "bucket-not-found")
    assert cluster.where_is(path) == []


def test_a_creation_that_waits_for_room_asks_again(
    cluster: LocalCluster, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its permit was valid when it was judged, and is not when there is room."""
    path = somewhere_else(cluster)
    held = Held(monkeypatch, Staging, "admitted")
    with ThreadPoolExecutor(1) as pool:
        creation = pool.submit(at, cluster, cluster.owner_of(path), "PUT", path)
        held.wait_for_it()
        assert at(cluster, "a", "DELETE", BUCKET).status == 204
        held.let_go()
        assert problem(creation.result()) == (404, "bucket-not-found")
    assert cluster.where_is(path) == []


def test_a_creation_that_asked_before_survives_a_deletion_that_fails(
    cluster: LocalCluster, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = somewhere_else(cluster)
    api.create(f"{BUCKET}/other")
    held = Held(monkeypatch, Peers, "ask", after=True)
    held.is_held = lambda self, shard, question, kind: isinstance(question, HasBucket)
    with ThreadPoolExecutor(1) as pool:
        creation = pool.submit(at, cluster, cluster.owner_of(path), "PUT", path)
        held.wait_for_it()
        assert at(cluster, "a", "DELETE", BUCKET).status == 409
        held.let_go()
        assert creation.result().status == 201
    assert len(cluster.where_is(path)) == 1


def test_creations_and_deletions_at_once_leave_no_stream_without_a_bucket(
    cluster: LocalCluster, api: Api
) -> None:
    paths = [f"{BUCKET}/r{n}" for n in range(6)]

    def work(number: int) -> tuple[str, int]:
        node_id, kind = "abc"[number % 3], number % 7
        if kind == 0:
            return "delete bucket", at(cluster, node_id, "DELETE", BUCKET).status
        if kind == 1:
            return "make bucket", at(cluster, node_id, "PUT", BUCKET).status
        method = "DELETE" if kind in (2, 3, 4) else "PUT"
        return method, at(cluster, node_id, method, paths[number % len(paths)]).status

    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(work, range(280)))
    assert {status for _, status in found} <= {200, 201, 204, 404, 409, 503}, found
    has_bucket = at(cluster, "a", "GET", BUCKET).status == 200
    held = [path for path in paths if cluster.where_is(path)]
    assert has_bucket or not held
    if not has_bucket:
        api.make_bucket()


def test_two_who_delete_a_bucket_at_once(cluster: LocalCluster, api: Api) -> None:
    with ThreadPoolExecutor(6) as pool:
        found = [r.status for r in pool.map(lambda n: at(cluster, n, "DELETE", BUCKET), "abcabc")]
    assert sorted(found) == [204] + [404] * 5


# -- questions as bytes ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "question",
    [
        HasBucket("/ds/buck"),
        IsEmpty("/ds/buck", [1, 2]),
        Count("/ds/buck", []),
        Page("/ds/buck", [3], "é", "a", 10),
    ],
)
def test_a_question_is_read_as_it_was_asked(question: Question) -> None:
    assert msgspec.json.decode(msgspec.json.encode(question), type=Question) == question
