from origin.storage.cluster.packs import Block, Extents
from origin.storage.cluster.usage import PackUsage


def extents(*packs: int) -> Extents:
    found = Extents()
    for number, pack in enumerate(packs):
        found.add(Block(number * 10, number * 10 + 10, pack, 0, 100))
    return found


def test_a_pack_is_unused_when_its_last_block_is_released() -> None:
    usage = PackUsage()
    usage.use(extents(1, 1, 2))
    usage.use(extents(2))
    usage.release(extents(2))
    assert usage.take_unused() == []
    usage.release(extents(1, 1, 2))
    assert sorted(usage.take_unused()) == [1, 2]
    assert usage.take_unused() == [] and usage.packs() == set()


def test_a_pack_used_again_meanwhile_is_kept() -> None:
    usage = PackUsage()
    usage.use(extents(1))
    usage.release(extents(1))
    usage.use(extents(1))
    assert usage.take_unused() == []


def test_sparse_packs_have_less_than_half_in_use() -> None:
    usage = PackUsage()
    usage.use(extents(1, 2, 2))
    assert usage.sparse({1: 201, 2: 400}) == {1}
