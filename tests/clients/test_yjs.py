"""The official Yjs server and its provider through the gateway: documents outlive compaction.

The server reads on from the offset of its last snapshot, and adds one to it where an offset looks
like two numbers: behind such offsets whoever joined after a compaction lost the beginning of the
first update after it, and with it all that followed.
"""

from itertools import pairwise

from tests.clients.conftest import Scenario
from tests.conformance.stacks import Gateway

BATCH, COMPACTIONS, MORE = 7, 2, 3  # lines; the last ones are too few to be compacted


def test_who_joins_after_compaction_has_every_line_of_two_documents(
    run: Scenario, gateway: Gateway
) -> None:
    documents = run(
        "join",
        script="yjs.mjs",
        base=gateway.url,
        token=gateway.token(),
        documents=["one", "two"],
        compactions=COMPACTIONS,
        more=MORE,
    )
    lines = list(range(BATCH * COMPACTIONS + MORE))
    for document in documents:
        assert document["found"] == [lines, lines]
        assert document["seen"] == [[*lines, len(lines)]] * 4
        offsets = document["offsets"]
        assert len(offsets) == COMPACTIONS and all(a < b for a, b in pairwise(offsets))
    one, two = (document["offsets"] for document in documents)
    assert one[0][:16] != two[0][:16]
