from pathlib import Path

import pytest

from origin.config import OriginConfig, load_config
from wire.settings import SettingsError

MIB = 1024 * 1024


def load_environ(tmp_path: Path, **environ: str) -> OriginConfig:
    return load_config({}, environ, configs_dir=tmp_path)


def test_nothing_set_gives_the_defaults(tmp_path: Path) -> None:
    config = load_environ(tmp_path)
    assert config == OriginConfig()
    assert config.server.port == 4437
    assert config.storage.mode == "file-durable"


@pytest.mark.parametrize(
    ("variable", "text", "section", "key", "value"),
    [
        ("DS_SERVER__PORT", "0", "server", "port", 0),
        ("DS_SERVER__LONG_POLL_TIMEOUT_SECS", "0.5", "server", "long_poll_timeout_secs", 0.5),
        ("DS_SERVER__SSE_RECONNECT_INTERVAL_SECS", "0", "server", "sse_reconnect_interval_secs", 0),
        (
            "DS_HTTP__CORS_ORIGINS",
            "https://a.b:1,null",
            "http",
            "cors_origins",
            ("https://a.b:1", "null"),
        ),
        ("DS_HTTP__PUBLIC_URL", "https://a.b/x/", "http", "public_url", "https://a.b/x"),
        ("DS_STORAGE__MODE", "redb", "storage", "mode", "acid"),
        ("DS_STORAGE__ACID_SHARD_COUNT", "256", "storage", "acid_shard_count", 256),
        ("DS_LIMITS__MAX_STREAM_BYTES", "1000", "limits", "max_stream_bytes", 1000),
        ("DS_LOG__FORMAT", "json", "log", "format", "json"),
    ],
)
def test_variable_sets_its_key(
    tmp_path: Path, variable: str, text: str, section: str, key: str, value: object
) -> None:
    config = load_environ(tmp_path, **{variable: text})
    assert getattr(getattr(config, section), key) == value


@pytest.mark.parametrize(
    ("variable", "text", "problem"),
    [
        ("DS_SERVER__PORT", "65536", "65536 is not between 0 and 65535"),
        ("DS_SERVER__HOST", "", "must not be empty"),
        ("DS_SERVER__LONG_POLL_TIMEOUT_SECS", "0", "0.0 is not above 0"),
        ("DS_SERVER__DRAIN_SECS", "-1", "-1.0 is less than 0"),
        ("DS_HTTP__CORS_ORIGINS", "a.b", "'a.b' is not auto, *, null or scheme://host[:port]"),
        (
            "DS_HTTP__CORS_ORIGINS",
            "https://a/",
            "'https://a/' is not auto, *, null or scheme://host[:port]",
        ),
        ("DS_HTTP__PUBLIC_URL", "a.b", "'a.b' is not an http or https URL"),
        ("DS_HTTP__PUBLIC_URL", "http://a b", "'http://a b' is not an http or https URL"),
        ("DS_TLS__CERT_PATH", "c.pem", "needs tls.key_path as well"),
        ("DS_TLS__KEY_PATH", "k.pem", "needs tls.cert_path as well"),
        ("DS_LIMITS__MAX_STREAMS", "0", "0 is not above 0"),
        ("DS_LIMITS__MAX_HEADER_BYTES", "10", "10 is less than 1024"),
        (
            "DS_STORAGE__MODE",
            "disk",
            "'disk' is not one of memory, file-fast, file-durable, acid, cluster",
        ),
        ("DS_STORAGE__DATA_DIR", "", "must not be empty"),
        ("DS_STORAGE__ACID_SHARD_COUNT", "3", "3 is not a power of two"),
        ("DS_STORAGE__ACID_SHARD_COUNT", "512", "512 is not between 1 and 256"),
        ("DS_STORAGE__JOURNAL_FILES", "1", "1 is less than 2"),
        ("DS_LOG__LEVEL", "loud", "'loud' is not one of debug, info, warning, error"),
        ("DS_LOG__FORMAT", "xml", "'xml' is not one of text, json"),
    ],
)
def test_bad_value_is_refused(tmp_path: Path, variable: str, text: str, problem: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_environ(tmp_path, **{variable: text})
    assert str(caught.value) == f"{variable}: {problem}"


def test_journal_must_hold_two_bodies(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        load_environ(tmp_path, DS_LIMITS__MAX_BODY_BYTES=str(17 * MIB))
    assert str(caught.value) == (
        "DS_LIMITS__MAX_BODY_BYTES: storage.journal_bytes: 33554432 is less than 64 KiB "
        "or twice limits.max_body_bytes (17825792)"
    )


@pytest.mark.parametrize("mode", ["memory", "acid"])
def test_modes_without_a_journal_do_not_ask_for_a_large_one(tmp_path: Path, mode: str) -> None:
    body = str(17 * MIB)
    config = load_environ(tmp_path, DS_LIMITS__MAX_BODY_BYTES=body, DS_STORAGE__MODE=mode)
    assert config.limits.max_body_bytes == 17 * MIB


NODE = {
    "DS_STORAGE__MODE": "cluster",
    "DS_SERVER__NODE_ID": "a",
    "DS_COLD__BACKEND": "fs",
    "DS_COLD__FS_PATH": "cold",
}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "0:0::0"])
def test_a_node_that_listens_everywhere_must_say_where_it_is(tmp_path: Path, host: str) -> None:
    """An address of every machine leads each node and gateway to itself."""
    text = f"must be set, because {host} (server.host) leads each machine to itself"
    with pytest.raises(SettingsError, match=r"server\.advertise: ") as caught:
        load_environ(tmp_path, **NODE, DS_SERVER__HOST=host)
    assert text in str(caught.value)
    url = "http://10.0.0.1:4437"
    config = load_environ(tmp_path, **NODE, DS_SERVER__HOST=host, DS_SERVER__ADVERTISE=url)
    assert config.server.advertise == url
    assert load_environ(tmp_path, DS_SERVER__HOST=host).server.advertise == ""  # one machine


@pytest.mark.parametrize("url", ["http://0.0.0.0:4437", "https://[::]:4437", "http://0.0.0.0"])
def test_no_address_of_every_machine_is_advertised(tmp_path: Path, url: str) -> None:
    with pytest.raises(SettingsError, match=r"leads each machine to itself"):
        load_environ(tmp_path, **NODE, DS_SERVER__ADVERTISE=url)


def test_all_layers_in_order(tmp_path: Path) -> None:
    (tmp_path / "default.toml").write_text("[server]\nport = 1\nhost = 'default'\ndrain_secs = 1\n")
    (tmp_path / "dev.toml").write_text("[server]\nport = 2\nhost = 'dev'\n")
    (tmp_path / "local.toml").write_text("[server]\nport = 3\n")
    extra = tmp_path / "extra.toml"
    extra.write_text("[server]\nport = 4\n[gateway]\nport = 8080\n")
    environ = {"DS_SERVER__PORT": "5", "DS_AUTH__MODE": "off", "DS_CACHE__MAX_BYTES": "1"}
    config = load_config(
        {("server", "port"): 6, ("storage", "data_dir"): None},
        environ,
        profile="dev",
        config_file=str(extra),
        configs_dir=tmp_path,
    )
    assert (config.server.port, config.server.host, config.server.drain_secs) == (6, "dev", 1.0)
    assert config.storage.data_dir == "./data"
