from protocol.clustermap import ClusterMap, shard_of


def test_the_hash_never_changes() -> None:
    """Another result would lose every stream of an existing cluster."""
    assert [shard_of(name, 16) for name in ("a", "chat/1", "/ds/demo", "/ds/demo/x", "é")] == [
        0,
        10,
        14,
        13,
        12,
    ]


def test_requests_go_to_the_owner() -> None:
    owners = tuple("n1" if shard % 2 else None for shard in range(16))
    known = ClusterMap("weir", 3, owners, {"n1": "http://127.0.0.1:1"})
    for name in ("a", "b", "chat/1", "/ds/demo/x"):
        expected = "http://127.0.0.1:1" if shard_of(name, 16) % 2 else None
        assert known.url_for(name) == expected


def test_an_owner_that_is_not_alive_is_none() -> None:
    assert ClusterMap("weir", 1, ("n2",), {"n1": "http://127.0.0.1:1"}).url_for("a") is None
