"""Requests go straight to owners: to real origins in this process that tell a real map."""

import os
import shutil

from loadtest.load.owners import Owners
from loadtest.load.wrk import Lane, run_wrk
from loadtest.peers.process import Server
from tests.helpers.cluster import LocalCluster
from tests.helpers.origin import LocalOrigin
from tests.helpers.require import need

PATHS = [f"s-{number}" for number in range(30)]


def test_each_owner_has_a_lane(cluster: LocalCluster, server: Server) -> None:
    lanes = Owners(server).lanes(PATHS)
    owners = {origin.port: node for node, origin in cluster.origins.items()}
    assert {owners[lane.port] for lane in lanes} == {"a", "b", "c"}
    for lane in lanes:
        assert {cluster.owner_of(path) for path in lane.paths} == {owners[lane.port]}
    assert sorted(path for lane in lanes for path in lane.paths) == sorted(PATHS)


def test_a_server_alone_has_as_many_lanes() -> None:
    owners = Owners(Server(1, 80, 0.0))
    assert owners.lanes(["a", "b", "c", "d"]) == (
        Lane(80, ("a", "d")),
        Lane(80, ("b",)),
        Lane(80, ("c",)),
    )
    assert owners.lanes(["a"]) == (Lane(80, ("a",)),)


async def test_no_request_is_forwarded(cluster: LocalCluster, server: Server) -> None:
    async with Owners(server) as owners:
        await owners.create_all(PATHS[:10], b"x")
        await owners.fill_all(PATHS[10:], b"yz")
        assert sorted(await owners.tails(PATHS)) == [1] * 10 + [2] * 20
        reply = await owners.client_of(PATHS[0]).fetch(
            owners.client_of(PATHS[0]).request("HEAD", PATHS[0])
        )
        assert "weir-map" not in reply.headers
        away = next(port for port in ports(cluster) if port != owners.port_of(PATHS[0]))
        client = owners.client_at(away)
        reply = await client.fetch(client.request("HEAD", PATHS[0]))
        assert "weir-map" in reply.headers


def ports(cluster: LocalCluster) -> list[int]:
    return [origin.port for origin in cluster.origins.values()]


async def test_wrk_goes_to_the_owners(server: Server) -> None:
    need(shutil.which("wrk"), "wrk is not installed")
    async with Owners(server) as owners:
        await owners.create_all(PATHS)
        load = owners.load("POST", PATHS, 7, body_bytes=10)
        result, _ = run_wrk(server.port, load, 1)
        assert sum(await owners.tails(PATHS)) >= result.requests * 10
        assert all(await owners.tails(PATHS))
        result, _ = run_wrk(server.port, owners.load("GET", PATHS, 6), 1)
        assert result.received_bytes > result.requests * 10


async def test_wrk_on_a_server_alone(origin: LocalOrigin) -> None:
    need(shutil.which("wrk"), "wrk is not installed")
    async with Owners(Server(os.getpid(), origin.port, 0.0)) as owners:
        await owners.create_all(PATHS)
        result, _ = run_wrk(origin.port, owners.load("POST", PATHS, 1, body_bytes=10), 1)
        assert result.requests and sum(await owners.tails(PATHS)) >= result.requests * 10
