"""The alerts by Prometheus' own judge: each fires when it should, and only then.

More than an hour of a healthy fleet's numbers is made up. A case changes some of them and names
the alert that must fire for it; all others must keep silent.
"""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.compose.native import ROOT

ALERTS = ROOT / "configs" / "alerts.yml"
STEP_S, END_S = 30, 80 * 60
STEPS = END_S // STEP_S

ORIGIN = 'job="weir-origin",instance="origin"'
GATEWAY = 'job="weir-gateway",instance="gateway"'
ENVOY = 'job="weir-envoy",instance="envoy"'
FRONT = f'{ENVOY},envoy_http_conn_manager_prefix="tls"'
GATEWAYS = f'{ENVOY},envoy_cluster_name="gateways"'


def steady(value: float) -> str:
    return f"{value}x{STEPS}"


def rising(each_step: float) -> str:
    return f"0+{each_step}x{STEPS}"


def lately(before: float, now: float, seconds: int) -> str:
    steps = seconds // STEP_S
    return f"{before}x{STEPS - steps} {now}x{steps}"


# A node of a cluster that had a bad day before: what was counted then, and what is normal.
NODE = {
    f"weir_origin_lease_held{{{ORIGIN}}}": steady(1),
    f"weir_origin_shards_ownerless{{{ORIGIN}}}": steady(0),
    f"weir_origin_cluster_shards{{{ORIGIN}}}": steady(16),
    **{
        f'weir_origin_shards{{{ORIGIN},state="{state}"}}': steady(count)
        for state, count in (("open", 16), ("opening", 0), ("offline", 0), ("closed", 0))
    },
    f"weir_origin_shards_opened_total{{{ORIGIN}}}": steady(300),
    f"weir_origin_journal_silent_seconds{{{ORIGIN}}}": steady(8),
    f"weir_origin_journal_bytes{{{ORIGIN}}}": steady(32e6),
    f"weir_origin_journal_limit_bytes{{{ORIGIN}}}": steady(64e6),
    f"weir_origin_flush_backlog_seconds{{{ORIGIN}}}": steady(40),
    **{
        f'weir_origin_backpressure{{{ORIGIN},reason="{reason}"}}': steady(0)
        for reason in ("lost", "journal-silent", "journal-full", "objects-away")
    },
    **{
        f'weir_origin_object_errors_total{{{ORIGIN},operation="{name}"}}': steady(30)
        for name in ("put", "get", "delete", "list")
    },
}

HEALTHY = {
    f"up{{{ORIGIN}}}": steady(1),
    f"up{{{GATEWAY}}}": steady(1),
    f"up{{{ENVOY}}}": steady(1),
    f"process_open_fds{{{GATEWAY}}}": steady(500),
    f"process_max_fds{{{GATEWAY}}}": steady(1024),
    f"weir_origin_writable{{{ORIGIN}}}": steady(1),
    f"weir_origin_stored_bytes{{{ORIGIN}}}": steady(1e9),
    **{
        f'weir_origin_requests_total{{{ORIGIN},method="GET",status="{status}"}}': values
        for status, values in ((200, rising(900)), (500, "0"), (503, "0"), (507, "0"))
    },
    **NODE,
    f"weir_gateway_upstream_up{{{GATEWAY}}}": steady(1),
    f'weir_gateway_upstream_failures_total{{{GATEWAY},code="origin-unavailable"}}': steady(3),
    f'weir_gateway_requests_total{{{GATEWAY},verdict="hit"}}': rising(10_000),
    f'weir_gateway_requests_total{{{GATEWAY},verdict="error"}}': rising(50),
    **{
        f'weir_gateway_request_seconds_bucket{{{GATEWAY},mode="catch-up",le="{le}"}}': rising(count)
        for le, count in ((0.1, 9_980), (0.5, 9_990), (1, 10_000), ("+Inf", 10_000))
    },
    f"weir_gateway_live_readers{{{GATEWAY}}}": steady(15_000),
    f"weir_gateway_redis_up{{{GATEWAY}}}": steady(1),
    f"weir_gateway_notices_unacknowledged_total{{{GATEWAY}}}": steady(3),
    f"weir_gateway_shared_rejected_total{{{GATEWAY}}}": steady(3),
    f"weir_gateway_jwks_failures_total{{{GATEWAY}}}": steady(3),
    f'weir_gateway_token_failures_total{{{GATEWAY},reason="expired"}}': rising(15),
    f"weir_gateway_revocations_unknown_total{{{GATEWAY}}}": steady(3),
    f"weir_gateway_workers{{{GATEWAY}}}": steady(2),
    f"weir_gateway_workers_up{{{GATEWAY}}}": steady(2),
    f"weir_gateway_worker_restarts_total{{{GATEWAY}}}": steady(3),
    f"weir_gateway_access_log_dropped_total{{{GATEWAY}}}": steady(3),
    f"weir_gateway_cdn_purges_failed_total{{{GATEWAY}}}": steady(3),
    f"envoy_cluster_membership_healthy{{{GATEWAYS}}}": steady(2),
    f"envoy_cluster_membership_total{{{GATEWAYS}}}": steady(2),
    f'envoy_http_downstream_rq_xx{{{FRONT},envoy_response_code_class="2"}}': rising(10_000),
    f'envoy_http_downstream_rq_xx{{{FRONT},envoy_response_code_class="5"}}': rising(50),
    f"envoy_http_jwt_authn_denied{{{FRONT}}}": rising(15),
    f"envoy_http_jwt_authn_jwks_fetch_failed{{{FRONT}}}": steady(3),
    f"envoy_listener_downstream_global_cx_overflow{{{ENVOY}}}": steady(3),
    f"envoy_server_days_until_first_cert_expiring{{{ENVOY}}}": steady(60),
    f"envoy_overload_envoy_resource_monitors_fixed_heap_pressure{{{ENVOY}}}": steady(60),
}

# By part of a series' name: what it is instead, and who must say so.
SICK: list[tuple[dict[str, str], str]] = [
    ({f"up{{{ORIGIN}}}": lately(1, 0, 120)}, "ServerIsGone"),
    ({f"up{{{ENVOY}}}": lately(1, 0, 120)}, "ServerIsGone"),
    ({"writable": lately(1, 0, 30)}, "OriginTakesNoWrites"),
    ({'status="503"': rising(1)}, "OriginFails"),
    ({'status="507"': rising(1)}, "OriginFails"),
    ({'status="500"': lately(0, 1, 600)}, "DataIsDamaged"),
    ({"lease_held": lately(1, 0, 60)}, "NodeHasNoLease"),
    ({"shards_ownerless": lately(0, 2, 120)}, "ShardHasNoOwner"),
    ({'state="offline"': lately(0, 1, 120)}, "ShardIsOffline"),
    ({'state="opening"': lately(0, 1, 120)}, "ShardIsOffline"),
    ({"journal_silent": lately(8, 16, 30)}, "JournalIsSilent"),
    ({"journal_bytes": lately(32e6, 50e6, 120)}, "JournalFillsUp"),
    ({'reason="journal-full"': lately(0, 1, 60)}, "JournalIsFull"),
    ({'reason="objects-away"': lately(0, 1, 60)}, "JournalIsFull"),
    ({'operation="put"': rising(1)}, "ObjectStorageFails"),
    ({'operation="get"': rising(1)}, "ObjectStorageFails"),
    ({"flush_backlog": lately(40, 301, 30)}, "FlushesAreLate"),
    ({"shards_opened": f"300x{STEPS - 60} 300+1.2x59"}, "ShardsMoveOften"),
    (
        {"upstream_up": lately(1, 0, 60), "upstream_failures": lately(3, 20, 60)},
        "OriginIsGivenUp",
    ),
    ({'verdict="error"': rising(200)}, "GatewaysFail"),
    ({'le="0.5"': rising(9_800), 'le="0.1"': rising(9_800)}, "ReadsAreSlow"),
    ({"live_readers": lately(15_000, 17_000, 120)}, "TooManyLiveReaders"),
    ({"open_fds": lately(500, 900, 120)}, "DescriptorsRunOut"),
    ({"membership_healthy": lately(2, 0, 60)}, "NoGatewayIsWell"),
    ({"membership_healthy": lately(2, 1, 600)}, "GatewayIsLeftOut"),
    ({'code_class="5"': rising(200)}, "EdgeFails"),
    ({"cx_overflow": lately(3, 4, 60)}, "EdgeIsFull"),
    ({"until_first_cert": lately(60, 2, 60)}, "CertificateEnds"),
    ({"until_first_cert": lately(60, 20, 4000)}, "CertificateEndsSoon"),
    ({"heap_pressure": lately(60, 90, 600)}, "EdgeLacksMemory"),
    ({"redis_up": lately(1, 0, 120)}, "RedisIsGone"),
    ({"unacknowledged": lately(3, 4, 60)}, "PurgesAreLate"),
    ({"shared_rejected": lately(3, 4, 60)}, "RedisHoldsStrangeValues"),
    ({"jwks_failures": lately(3, 8, 60)}, "KeysCannotBeFetched"),
    ({"jwks_fetch_failed": lately(3, 8, 60)}, "KeysCannotBeFetched"),
    ({"token_failures": rising(60)}, "TokensAreRefused"),
    ({"authn_denied": rising(60)}, "TokensAreRefusedAtTheEdge"),
    ({"revocations_unknown": lately(3, 4, 60)}, "RevocationsAreUnknown"),
    ({"workers_up": lately(2, 1, 120)}, "WorkersAreMissing"),
    ({"worker_restarts": lately(3, 4, 60)}, "WorkersDie"),
    ({"access_log_dropped": lately(3, 4, 60)}, "AccessLogIsLost"),
    ({"cdn_purges_failed": lately(3, 4, 60)}, "CdnKeepsWhatWasDeleted"),
    ({"stored_bytes": rising(1.6e8)}, "StorageFillsUp"),
]


def with_changes(changes: dict[str, str]) -> dict[str, str]:
    series = dict(HEALTHY)
    for part, values in changes.items():
        (name,) = [part] if part in series else [name for name in series if part in name]
        series[name] = values
    return series


def judge(promtool: Path, folder: Path, series: dict[str, str], firing: list[str]) -> str:
    """What promtool has to complain of."""
    case = folder / "case.yml"
    sample = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in firing]
    expression = 'count by (alertname) (ALERTS{alertstate="firing"})'
    test = {
        "interval": f"{STEP_S}s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": expression, "eval_time": f"{END_S}s", "exp_samples": sample}],
    }
    whole = {"rule_files": [str(ALERTS)], "evaluation_interval": f"{STEP_S}s", "tests": [test]}
    case.write_text(json.dumps(whole))
    done = subprocess.run(
        [promtool, "test", "rules", case], capture_output=True, text=True, check=False, timeout=60
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.fixture
def promtool(programs: dict[str, Path]) -> Path:
    return programs["promtool"]


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_a_healthy_fleet_lets_everybody_sleep(promtool: Path, tmp_path: Path) -> None:
    assert judge(promtool, tmp_path, HEALTHY, []) == ""


@pytest.mark.parametrize(("changes", "alert"), SICK, ids=[alert for _, alert in SICK])
def test_what_is_wrong_is_told(
    promtool: Path, tmp_path: Path, changes: dict[str, str], alert: str
) -> None:
    assert judge(promtool, tmp_path, with_changes(changes), [alert]) == ""


def test_a_gateway_that_is_replaced_wakes_nobody(promtool: Path, tmp_path: Path) -> None:
    changes = {
        f"up{{{GATEWAY}}}": lately(1, 0, 60),
        "membership_healthy": lately(2, 1, 60),
        "workers_up": lately(2, 1, 60),
    }
    assert judge(promtool, tmp_path, with_changes(changes), []) == ""


def test_a_node_that_is_replaced_wakes_nobody(promtool: Path, tmp_path: Path) -> None:
    """Its shards are taken over, and given back."""
    changes = {
        f"up{{{ORIGIN}}}": lately(1, 0, 60),
        "shards_ownerless": lately(0, 5, 60),
        'state="opening"': lately(0, 5, 60),
        "shards_opened": lately(300, 332, 600),
    }
    assert judge(promtool, tmp_path, with_changes(changes), []) == ""


def test_an_election_of_nats_wakes_nobody(promtool: Path, tmp_path: Path) -> None:
    changes = {
        "lease_held": lately(1, 0, 30),
        "journal_silent": lately(0, 9, 30),
        'reason="journal-silent"': lately(0, 5, 30),
        'status="503"': lately(0, 40, 30),
    }
    assert judge(promtool, tmp_path, with_changes(changes), []) == ""


def test_a_single_error_of_object_storage_wakes_nobody(promtool: Path, tmp_path: Path) -> None:
    changes = {'operation="put"': lately(30, 31, 600), "journal_bytes": lately(32e6, 50e6, 60)}
    assert judge(promtool, tmp_path, with_changes(changes), []) == ""


def test_a_gateway_that_nobody_asks_since_the_origin_was_away_wakes_nobody(
    promtool: Path, tmp_path: Path
) -> None:
    changes = {"upstream_up": lately(1, 0, 1800)}
    assert judge(promtool, tmp_path, with_changes(changes), []) == ""


def test_every_alert_is_tried() -> None:
    named = [rule["alert"] for rule in rules()]
    assert len(named) == len(set(named))
    assert set(named) == {alert for _, alert in SICK}


def test_every_alert_has_a_row_that_says_what_to_do() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    rows = re.findall(r"^\| `([A-Z]\w+)` \|", text, re.MULTILINE)
    assert rows == [rule["alert"] for rule in rules()]
