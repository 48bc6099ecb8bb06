from pathlib import Path

import pytest

from gateway.config import AuthConfig, GatewayConfig, load_config
from wire.settings import SettingsError

KEYS = {"DS_AUTH__JWKS": "keys.json"}


def load_environ(tmp_path: Path, **environ: str) -> GatewayConfig:
    return load_config({}, KEYS | environ, configs_dir=tmp_path)


NO_NODE = "{!r} is not the http or https URL of a node, without a path"


def test_only_the_keys_must_be_given(tmp_path: Path) -> None:
    config = load_environ(tmp_path)
    assert config == GatewayConfig(auth=AuthConfig(jwks="keys.json"))
    assert (config.gateway.port, config.gateway.admin_port) == (8080, 9090)
    assert config.gateway.origin_url == "http://127.0.0.1:4437"
    assert config.auth.mode == "jwt"


@pytest.mark.parametrize(
    ("variable", "text", "section", "key", "value"),
    [
        ("DS_GATEWAY__PORT", "0", "gateway", "port", 0),
        ("DS_GATEWAY__ORIGIN_URL", "https://a.b/", "gateway", "origin_url", "https://a.b"),
        ("DS_GATEWAY__ORIGIN_URLS", "", "gateway", "origin_urls", ()),
        ("DS_GATEWAY__ORIGIN_URLS", "http://a:1, http://b:1/,http://a:1/", "gateway", "origin_urls")
        + (("http://a:1", "http://b:1"),),
        ("DS_GATEWAY__WORKERS", "4", "gateway", "workers", 4),
        ("DS_GATEWAY__ADMIN_PORT", "0", "gateway", "admin_port", 0),
        ("DS_GATEWAY__ACCESS_LOG", "/var/log/weir", "gateway", "access_log", "/var/log/weir"),
        ("DS_AUTH__MODE", "off", "auth", "mode", "off"),
        ("DS_AUTH__JWKS", "https://a/keys", "auth", "jwks", "https://a/keys"),
        ("DS_AUTH__ISSUER", "https://a", "auth", "issuer", "https://a"),
        ("DS_AUTH__AUDIENCE", "streams", "auth", "audience", "streams"),
        ("DS_AUTH__LEEWAY_SECS", "0.5", "auth", "leeway_secs", 0.5),
        ("DS_AUTH__ALGORITHMS", "EdDSA, ES256", "auth", "algorithms", ("EdDSA", "ES256")),
        ("DS_CACHE__REDIS_URL", "redis://h:1/0", "cache", "redis_url", "redis://h:1/0"),
        ("DS_CACHE__MAX_BYTES", "1000", "cache", "max_bytes", 1000),
        ("DS_CDN__PUBLIC", "news/*,blog", "cdn", "public", ("news/*", "blog")),
        ("DS_HTTP__CORS_ORIGINS", "https://a", "http", "cors_origins", ("https://a",)),
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
        ("DS_GATEWAY__PORT", "65536", "65536 is not between 0 and 65535"),
        ("DS_GATEWAY__HOST", "", "must not be empty"),
        ("DS_GATEWAY__ORIGIN_URL", "a.b:1", "'a.b:1' is not an http or https URL"),
        ("DS_GATEWAY__ORIGIN_URLS", "http://a,http://b/c", NO_NODE.format("http://b/c")),
        ("DS_GATEWAY__ORIGIN_URLS", "http://u:p@a", NO_NODE.format("http://u:p@a")),
        ("DS_GATEWAY__WORKERS", "0", "0 is not between 1 and 256"),
        ("DS_GATEWAY__NAME", "a b", "may hold letters, digits, dots, hyphens and underscores"),
        ("DS_GATEWAY__TLS_CERT_PATH", "c.pem", "needs gateway.tls_key_path as well"),
        ("DS_GATEWAY__TLS_KEY_PATH", "k.pem", "needs gateway.tls_cert_path as well"),
        ("DS_GATEWAY__MAX_HEADER_BYTES", "10", "10 is less than 1024"),
        ("DS_GATEWAY__REQUEST_BURST", "0", "0 is not above 0"),
        ("DS_GATEWAY__PROT", "1", "unknown key (did you mean port?)"),
        ("DS_UPSTREAM__RETRIES", "6", "6 is not between 0 and 5"),
        ("DS_AUTH__MODE", "none", "'none' is not one of jwt, off"),
        ("DS_AUTH__ALGORITHMS", "HS256", "'HS256' is not one of RS256, ES256, EdDSA"),
        ("DS_AUTH__ALGORITHMS", "", "must not be empty"),
        ("DS_AUTH__LEEWAY_SECS", "301", "301.0 is not between 0 and 300"),
        ("DS_AUTH__QUERY_PARAMETER", "offset", "is taken by the protocol"),
        ("DS_AUTH__QUERY_PARAMETER", "prefix", "is taken by the protocol"),
        ("DS_GATEWAY__MAX_SNAPSHOT_BYTES", "0", "0 is not above 0"),
        ("DS_AUTH__REVOCATION", "yes", "needs cache.redis_url"),
        ("DS_CACHE__REDIS_URL", "h:1", "'h:1' is not a redis, rediss or unix URL"),
        ("DS_CACHE__TAIL_READS", "never", "'never' is not one of origin, hub"),
        ("DS_CDN__TAG_HEADER", "X-Tag", "'X-Tag' is not one of , Surrogate-Key, Cache-Tag"),
        ("DS_CDN__PURGE_HEADER", "a\nb", "'a\\nb' is not `Name: value`"),
    ],
)
def test_bad_value_is_refused(tmp_path: Path, variable: str, text: str, problem: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_environ(tmp_path, **{variable: text})
    assert str(caught.value) == f"{variable}: {problem}"


def test_keys_are_asked_for_unless_tokens_are_off(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"auth\.jwks: must name a file or URL of keys"):
        load_config({}, {}, configs_dir=tmp_path)
    assert load_config({}, {"DS_AUTH__MODE": "off"}, configs_dir=tmp_path).auth.jwks == ""


def test_settings_of_the_origin_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "default.toml").write_text("[server]\nport = 1\n[storage]\nnonsense = 1\n")
    assert load_environ(tmp_path, DS_LIMITS__MAX_STREAMS="0", DS_TLS__CERT_PATH="x") == (
        load_config({}, KEYS, configs_dir=tmp_path / "none")
    )


def test_what_the_origin_judges_by_tokens_is_not_public(tmp_path: Path) -> None:
    both = {"DS_UPSTREAM__FORWARD_TOKEN": "true", "DS_CDN__PUBLIC": "news/*"}
    with pytest.raises(SettingsError, match=r"cdn\.public: must be empty"):
        load_environ(tmp_path, **both)


REDIS = {"DS_CACHE__REDIS_URL": "redis://redis:6379"}


def test_redis_without_a_key_can_be_refused(tmp_path: Path) -> None:
    wanted = {"DS_CACHE__REQUIRE_REDIS_KEY": "true"}
    with pytest.raises(SettingsError, match=r"cache\.redis_key: must be set"):
        load_environ(tmp_path, **REDIS, **wanted)
    assert load_environ(tmp_path, **REDIS).cache.redis_key == ""
    assert load_environ(tmp_path, **wanted).cache.redis_url == ""
    assert load_environ(tmp_path, **REDIS, **wanted, DS_CACHE__REDIS_KEY="s3cret")


def test_by_default_no_subject_can_use_up_what_all_share() -> None:
    config = GatewayConfig(auth=AuthConfig(jwks="keys.json"))
    serving, upstream = config.gateway, config.upstream
    assert 0 < serving.requests_per_second and serving.request_burst > 0
    assert serving.max_live_readers_per_subject <= serving.max_live_readers / 2
    assert serving.max_spool_bytes_per_subject <= serving.max_spool_bytes / 2
    assert serving.max_bodies_bytes_per_subject <= serving.max_bodies_bytes / 2
    assert upstream.subject_share <= 0.5


def test_without_tokens_everybody_is_one_subject_and_may_have_all() -> None:
    assert GatewayConfig(auth=AuthConfig(mode="off")).per_subject(3, 10) == 10
    assert GatewayConfig(auth=AuthConfig(jwks="keys.json")).per_subject(3, 10) == 3
    assert GatewayConfig(auth=AuthConfig(jwks="keys.json")).per_subject(30, 10) == 10
