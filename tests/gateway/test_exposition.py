import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from gateway.exposition import gauge_text, label_sample, merge_metrics


def exposed(requests: int, mode: str = "sse") -> str:
    registry = CollectorRegistry()
    counter = Counter("requests", "Requests by mode.", ["mode"], registry=registry)
    counter.labels(mode).inc(requests)
    Histogram("seconds", "Durations.", buckets=[1], registry=registry).observe(0.5)
    return generate_latest(registry).decode()


def parsed(text: str) -> dict[tuple[str, str], float]:
    """(sample, worker) -> value"""
    families = text_string_to_metric_families(text)
    samples = [sample for family in families for sample in family.samples]
    return {(sample.name, sample.labels.get("worker", "")): sample.value for sample in samples}


def test_every_sample_names_its_worker() -> None:
    values = parsed(merge_metrics({0: exposed(3), 1: exposed(4)}))
    assert values["requests_total", "0"] == 3
    assert values["requests_total", "1"] == 4
    assert values["seconds_count", "1"] == 1
    assert {worker for _, worker in values} == {"0", "1"}


def test_help_and_type_are_said_once_a_family() -> None:
    lines = merge_metrics({n: exposed(n) for n in range(3)}).splitlines()
    about = [line for line in lines if line.startswith("#")]
    assert len(about) == len(set(about))
    assert "# TYPE requests_total counter" in about


def test_samples_of_a_family_stand_together() -> None:
    text = merge_metrics({0: exposed(1), 1: exposed(2)})
    families = [family.name for family in text_string_to_metric_families(text)]
    assert len(families) == len(set(families))


def test_a_family_that_only_one_worker_has_is_kept() -> None:
    more = "# HELP hubs Hubs.\n# TYPE hubs gauge\nhubs 2.0\n"
    assert parsed(merge_metrics({0: "", 5: more})) == {("hubs", "5"): 2.0}


@pytest.mark.parametrize(
    ("line", "labelled"),
    [
        ("up 1", 'up{worker="7"} 1'),
        ('up{a="b"} 1', 'up{worker="7",a="b"} 1'),
        ("up{} 1", 'up{worker="7"} 1'),
        ('up{a="x{y} z"} 1 123', 'up{worker="7",a="x{y} z"} 1 123'),
    ],
)
def test_a_label_is_put_first(line: str, labelled: str) -> None:
    assert label_sample(line, 7) == labelled


@given(st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=30))
def test_any_label_value_survives(value: str) -> None:
    families = text_string_to_metric_families(merge_metrics({2: exposed(1, value)}))
    found = [s.labels for f in families for s in f.samples if s.name == "requests_total"]
    assert found == [{"worker": "2", "mode": value}]


def test_a_gauge_of_our_own_parses() -> None:
    assert parsed(gauge_text("workers_up", "Workers that answered.", 2)) == {("workers_up", ""): 2}
