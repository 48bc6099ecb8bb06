import json
import subprocess
from pathlib import Path

from loadtest.peers.configs import build_envoy, build_nchan, build_nginx, build_vcl
from loadtest.peers.servers import find_envoy
from loadtest.peers.tokens import write_tokens


def provider(remember_tokens: bool) -> dict[str, object]:
    config = json.loads(build_envoy(1, 2, "{}", remember_tokens=remember_tokens))
    [chain] = config["static_resources"]["listeners"][0]["filter_chains"]
    [jwt, *_] = chain["filters"][0]["typed_config"]["http_filters"]
    found: dict[str, object] = jwt["typed_config"]["providers"]["bench"]
    return found


def test_envoy_takes_its_configuration(tmp_path: Path) -> None:
    jwks = write_tokens(tmp_path, 1).jwks.read_text()
    path = tmp_path / "envoy.json"
    path.write_text(build_envoy(18080, 18081, jwks, remember_tokens=True))
    command = [str(find_envoy()), "--mode", "validate", "-c", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_only_plain_envoy_verifies_every_token_anew() -> None:
    assert "jwt_cache_config" in provider(remember_tokens=True)
    assert "jwt_cache_config" not in provider(remember_tokens=False)
    assert provider(remember_tokens=True)["forward"] is False


def test_nginx_shares_one_answer_among_all_tokens() -> None:
    text = build_nginx(Path("/f"), 18080, 18081, "root")
    assert "proxy_pass http://origin" in text and "server 127.0.0.1:18081;" in text
    assert "proxy_cache_lock on;" in text and "$http_authorization" not in text
    assert text.count("{") == text.count("}")
    assert "\nuser root;\n" in text
    assert "\nuser " not in build_nginx(Path("/f"), 18080, 18081, "")


def test_nchan_serves_the_urls_of_streams() -> None:
    text = build_nchan(Path("/f"), 18080, Path("/modules"), "")
    assert text.startswith("load_module /modules/ngx_nchan_module.so;\n")
    assert "location ~ ^/v1/stream/(.+)$ {" in text
    assert text.count("{") == text.count("}")


def test_varnish_ignores_the_token() -> None:
    text = build_vcl(18081)
    assert '.port = "18081";' in text
    assert "unset req.http.Authorization;" in text
