import socket

from weir.cluster.ports import CHOICE, choose_ports, is_free

HOST = "127.0.0.1"


def test_each_name_has_a_port_of_its_own_outside_of_the_kernels_range() -> None:
    chosen = choose_ports(HOST, map(str, range(200)), {})
    assert len(set(chosen.values())) == 200
    assert all(port in CHOICE for port in chosen.values())


def test_kept_ports_stay_while_they_are_free() -> None:
    kept = choose_ports(HOST, ("a", "b", "c"), {})
    with socket.create_server((HOST, kept["b"])):
        assert not is_free(HOST, kept["b"])
        again = choose_ports(HOST, ("a", "b", "c"), kept)
    assert (again["a"], again["c"]) == (kept["a"], kept["c"])
    assert again["b"] not in kept.values()
    assert choose_ports(HOST, ("a", "b", "c"), kept) == kept


def test_nobody_is_given_what_another_one_keeps() -> None:
    kept = choose_ports(HOST, map(str, CHOICE[:50]), {})
    assert choose_ports(HOST, ("new",), kept)["new"] not in kept.values()
