from itertools import chain
from pathlib import Path

import pytest

from loadtest.load.bench import chosen_suites, parse_options
from loadtest.load.contest import Contest
from loadtest.load.suites import SUITES, Suite
from loadtest.peers.names import BEFORE, REPLAY


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ([], ["origin", "cluster", "gateway", "state", "analytics", "load"]),
        (["--suite", "gateway"], ["gateway"]),
        (["--only", "polls"], ["gateway"]),
        (["--only", "cluster-takeover"], ["cluster"]),
        (["--only", "compacted"], ["state"]),
        (["--only", "loglines"], ["analytics"]),
        (["--only", "read64", "--only", "miss"], ["origin", "gateway"]),
    ],
)
def test_suites_are_chosen_by_name_or_scenario(arguments: list[str], names: list[str]) -> None:
    assert [suite.name for suite in chosen_suites(parse_options(arguments))] == names


def test_scenario_names_are_unique() -> None:
    names = [scenario.name for suite in SUITES for scenario in suite.scenarios]
    assert len(names) == len(set(names))


def test_peers_of_a_contest_belong_to_its_suite() -> None:
    gateway = SUITES[2]
    contests = [one for one in gateway.scenarios if isinstance(one, Contest)]
    assert set(chain(*(contest.peers or () for contest in contests))) == set(gateway.peers)


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_the_board_shows_every_peer(suite: Suite) -> None:
    assert set(suite.peers) <= set(suite.board.peers)
    assert set(suite.board.peers) - set(suite.peers) <= {REPLAY}


def test_another_checkout_competes_in_every_contest() -> None:
    suites = [suite.beside(Path("elsewhere")) for suite in SUITES]
    origin, cluster, gateway, state, analytics, load = suites
    for suite in (origin, cluster, gateway, load):
        assert set(suite.peers) == set(suite.servers) == set(suite.board.peers)
        contests = [one for one in suite.scenarios if isinstance(one, Contest)]
        for contest in contests:
            assert contest.peers is None or BEFORE in contest.peers
            assert all(measure.goals[-1].peer == BEFORE for measure in contest.measures)
    assert (state, analytics) == SUITES[3:5]
