"""How shards move between nodes: every decision, without a network."""

from hypothesis import given
from hypothesis import strategies as st

from origin.cluster.assignment import (
    Assignment,
    Place,
    begin,
    give,
    orphans_for,
    surplus_of,
    take,
)

NODES = ("n1", "n2", "n3")


def owners(assignment: Assignment) -> list[str]:
    return [place.owner for place in assignment.places]


def settled(assignment: Assignment, alive: tuple[str, ...]) -> Assignment:
    """As after every live node has taken its part."""
    parts = {node: orphans_for(assignment, alive, node) for node in alive}
    for node, shards in parts.items():
        assignment = take(assignment, shards, node)
    return assignment


def test_a_new_cluster_is_split_evenly() -> None:
    assignment = settled(begin("weir", "fs:/x", 16), NODES)
    assert sorted(owners(assignment).count(node) for node in NODES) == [5, 5, 6]
    assert {place.epoch for place in assignment.places} == {1}


def test_only_the_shards_of_a_dead_node_move() -> None:
    before = settled(begin("weir", "fs:/x", 16), NODES)
    after = settled(before, ("n1", "n3"))
    for old, new in zip(before.places, after.places, strict=True):
        if old.owner == "n2":
            assert new.owner in ("n1", "n3") and new.epoch == old.epoch + 1
        else:
            assert new == old
    assert sorted(owners(after).count(node) for node in ("n1", "n3")) == [8, 8]


@given(
    st.lists(st.sampled_from(["", *NODES]), min_size=1, max_size=40),
    st.sets(st.sampled_from(NODES), min_size=1),
)
def test_every_orphan_has_exactly_one_taker(places: list[str], alive: set[str]) -> None:
    assignment = Assignment("weir", "", tuple(Place(owner, 1) for owner in places))
    taken = [shard for node in alive for shard in orphans_for(assignment, alive, node)]
    orphans = [shard for shard, owner in enumerate(places) if owner not in alive]
    assert sorted(taken) == orphans


@given(st.lists(st.sampled_from(NODES), min_size=1, max_size=40))
def test_handing_over_ends_and_is_even(places: list[str]) -> None:
    assignment = Assignment("weir", "", tuple(Place(owner, 1) for owner in places))
    moves = 0
    while True:
        for node in NODES:
            surplus = surplus_of(assignment, NODES, node, assignment.of(node))
            if surplus is not None:
                assignment = take(give(assignment, *surplus), [surplus[0]], surplus[1])
                break
        else:
            break
        moves += 1
        assert moves <= len(places)
    counts = [owners(assignment).count(node) for node in NODES]
    assert max(counts) - min(counts) <= 1


def test_nothing_is_handed_to_a_node_that_is_gone() -> None:
    assignment = Assignment("weir", "", (Place("n1", 1),) * 4)
    assert surplus_of(assignment, ("n1",), "n1", [0, 1, 2, 3]) is None
    assert surplus_of(assignment, ("n1", "n2"), "n1", []) is None
    assert surplus_of(assignment, ("n1", "n2"), "n1", [0, 1, 2, 3]) == (3, "n2")
