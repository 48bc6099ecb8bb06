"""Values of tests about clusters."""

from typing import Any

from weir.cluster.clusterfile import ClusterFile, GatewayServer, NatsServer, Node, ObjectServer

Entry = dict[str, Any]


def make_file(urls: tuple[str, ...] = (), pid: int | None = None) -> ClusterFile:
    """A cluster with a node for each URL."""
    urls = urls or tuple(f"http://127.0.0.1:{number}" for number in (1, 2, 3))
    return ClusterFile(
        cluster="weir",
        nodes=tuple(Node(f"n{number}", url) for number, url in enumerate(urls, 1)),
        nats=tuple(
            NatsServer(f"nats-{n}", f"nats://127.0.0.1:4{n}", f"http://127.0.0.1:5{n}")
            for n in (1, 2, 3)
        ),
        s3=ObjectServer("http://127.0.0.1:60", "weir"),
        gateways=tuple(
            GatewayServer(f"gateway-{n}", f"http://127.0.0.1:7{n}", f"http://127.0.0.1:8{n}")
            for n in (1, 2)
        ),
        access_key_file="/data/keys/origin-key",
        secrets_file="/data/keys/cluster-secrets.json",
        ports={"n1": 1},
        pid=pid,
    )


def node_entry(node_id: str, **more: object) -> Entry:
    return {"id": node_id, "url": f"http://{node_id}", "pid": 1, "shards": [], **more}


def shard_entry(number: int, owner: str | None, **more: object) -> Entry:
    return {"shard": number, "owner": owner, "epoch": 3, "state": "open", **more}
