"""A program for tests: NATS and S3 of `weir up --cluster`, without nodes and gateways.

`backing FOLDER` keeps three NATS servers and an S3 server running and `FOLDER/cluster.json` up to
date; it prints `ready` once they are.
"""

import sys
from pathlib import Path

from gateway.config import AuthConfig, GatewayConfig
from origin.config import OriginConfig
from weir.cluster.keeper import Keeper, keep_running
from weir.cluster.layout import Layout
from weir.commands.localcluster import Notes, make_layout, nats_service, object_service
from weir.commands.up import Plan

SIZE = 3


def start_all(layout: Layout, keeper: Keeper) -> None:
    nats = [nats_service(settings) for settings in layout.nats("weir")]
    keeper.start(nats, [object_service(layout)])
    print("ready", flush=True)


def main() -> None:
    data = Path(sys.argv[1]).resolve()
    data.mkdir(parents=True, exist_ok=True)
    plan = Plan(OriginConfig(), GatewayConfig(auth=AuthConfig(mode="off")), None)
    layout = make_layout(plan, data, SIZE)
    notes = Notes(data, layout.file(plan.origin, plan.gateway))
    sys.exit(keep_running(lambda k: start_all(layout, k), restart=True, on_pid=notes.note_pid))


if __name__ == "__main__":
    main()
