"""`make docs`: the chapters of the official suite in docs/protocol-support.md.

How many tests a chapter has is the suite's to say: test_conformance.py compares. Beside it stands
one test of ours that looks at the same from another side; tests/docs holds that it exists.
"""

import re
import sys
from collections.abc import Iterable
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/protocol-support.md"
CHAPTERS = {
    "Basic Stream Operations": (
        5,
        "origin/test_concurrency.py::test_one_of_many_equal_creations_creates",
    ),
    "Append Operations": (3, "origin/test_concurrency.py::test_plain_appends_of_many_all_count"),
    "Read Operations": (3, "origin/test_chunks.py::test_readers_who_start_anywhere_meet"),
    "Long-Poll Operations": (
        2,
        "origin/test_live.py::test_an_append_wakes_all_waiters_with_the_same_answer",
    ),
    "HTTP Protocol": (15, "wire/test_front.py::test_both_paths_give_the_same_answers"),
    "Browser Security Headers": (
        9,
        "origin/test_handlers.py::test_every_answer_is_safe_in_a_browser",
    ),
    "TTL and Expiry Validation": (5, "protocol/test_requests.py::test_create_refusal"),
    "Case-Insensitivity": (3, "protocol/test_media.py::test_parameters_and_case_do_not_count"),
    "Content-Type Validation": (3, "protocol/test_stream.py::test_same_configuration"),
    "HEAD Metadata": (
        3,
        "protocol/test_replies.py::test_head_shows_the_configured_window_and_time",
    ),
    "Offset Validation and Resumability": (
        20,
        "origin/test_chunks.py::test_offsets_that_were_never_handed_out_are_400",
    ),
    "Protocol Edge Cases": (12, "protocol/test_stream.py::test_order_of_judgement"),
    "Long-Poll Edge Cases": (5, "origin/test_live.py::test_each_waiter_has_its_own_deadline"),
    "TTL and Expiry Edge Cases": (
        9,
        "origin/test_lifetimes.py::test_an_expiry_in_the_past_is_refused",
    ),
    "HEAD Metadata Edge Cases": (2, "origin/test_lifetimes.py::test_head_does_not_move_it"),
    "TTL Expiration Behavior": (14, "origin/test_lifetimes.py::test_use_moves_the_idle_window"),
    "Caching and ETag": (5, "origin/test_chunks.py::test_a_recreated_stream_gives_no_false_304"),
    "Chunking and Large Payloads": (
        2,
        "origin/test_chunks.py::test_an_append_larger_than_a_chunk_is_one_answer",
    ),
    "Read-Your-Writes Consistency": (
        3,
        "scenarios/test_read_your_writes.py::"
        "test_two_gateways_under_load_never_answer_from_before_the_question",
    ),
    "SSE Mode": (31, "scenarios/test_live.py::test_joiners_at_any_offset_get_every_byte_once"),
    "JSON Mode": (16, "protocol/test_jsonmode.py::test_accepts_exactly_strict_json"),
    "Property-Based Tests (fast-check)": (17, "model/test_model.py::test_server_and_model_agree"),
    "Idempotent Producer Operations": (
        29,
        "origin/test_concurrency.py::test_the_same_batch_sent_by_many_is_stored_once",
    ),
    "Stream Closure": (34, "origin/test_concurrency.py::test_after_a_close_nothing_is_appended"),
    "Fork - Creation": (34, "origin/test_forks.py::test_a_refused_fork_does_not_hold_its_source"),
    "Fork - Reading": (6, "origin/test_chunks.py::test_a_fork_reads_across_its_border"),
    "Fork - Appending": (5, "protocol/test_stream.py::test_a_fork_begins_at_its_fork_point"),
    "Fork - Recursive": (5, "origin/test_concurrency.py::test_forks_and_deletes_of_a_chain"),
    "Fork - Live Modes": (
        4,
        "origin/test_live.py::test_appends_to_the_source_do_not_wake_the_readers_of_a_fork",
    ),
    "Fork - Deletion and Lifecycle": (
        13,
        "origin/test_forks.py::test_a_fork_and_its_source_are_deleted_at_the_same_time",
    ),
    "Fork - TTL and Expiry": (
        9,
        "origin/test_lifetimes.py::test_an_expired_source_is_held_for_its_forks",
    ),
    "Fork - JSON Mode": (
        2,
        "extension/test_3_bootstrap.py::test_3_2_a_fork_of_json_cuts_between_messages",
    ),
    "Fork - Edge Cases": (4, "origin/test_forks.py::test_fork_of_itself_is_not_there"),
}
LEFT_OUT = {"Reserved subscription APIs": 6}  # of what is not there: docs/gaps.md
COUNTS = {chapter: count for chapter, (count, _) in CHAPTERS.items()}

_TABLE = re.compile(r"(?<=<!-- chapters: written by `make docs` -->\n).*?(?=<!-- end -->)", re.S)


def count_chapters(listed: Iterable[str]) -> dict[str, int]:
    """Of lines as `vitest list` prints them: file > chapter > ... > test."""
    counts: dict[str, int] = {}
    for line in listed:
        chapter = line.split(" > ")[1]
        counts[chapter] = counts.get(chapter, 0) + 1
    return counts


def render(document: str) -> str:
    rows = [f"| {chapter} | {count} | `{ours}` |" for chapter, (count, ours) in CHAPTERS.items()]
    rows += [f"| {chapter} | {count}, left out | |" for chapter, count in LEFT_OUT.items()]
    passed = sum(COUNTS.values())
    total = f"| all | {passed} of {passed + sum(LEFT_OUT.values())} | |"
    table = "\n".join(
        ["| chapter | tests | one of ours beside it |", "|---|---|---|", *rows, total]
    )
    return _TABLE.sub(lambda _: f"{table}\n", document)


def main() -> int:
    text = DOCUMENT.read_text("utf-8")
    if "--check" not in sys.argv:
        DOCUMENT.write_text(render(text), "utf-8")
    elif text != render(text):
        print(f"{DOCUMENT.name} lacks what the suite has: run `make docs`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
