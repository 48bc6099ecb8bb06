"""Sections about the contents of streams, alone and with their traffic."""

import math
from collections.abc import Iterable, Sequence

from pages.blocks import Section, data_table, empty, names, numbers, section, side_by_side
from pages.charts import (
    Bar,
    Frame,
    Measure,
    Point,
    Series,
    bar_list,
    line_chart,
    scatter_chart,
    stacked_chart,
)
from pages.figures import count, exact, plural, ratio, size, step_name
from pages.markup import Markup, name_of, visible
from pages.scales import Scale, TimeAxis, linear_scale, log_scale, time_axis
from spark.report.data import MAX_SLOTS, Pair, ReportData, State, TypeState

LINES = 5  # types with their own line
LISTED = 8  # rows of the two short lists
NO_STATE = "No streams were read. Use --origin to include their state."
NONE = 0.3  # position of zeros on a logarithmic scale
HOT, UNREAD, USUAL = "diamond", "square", "circle"


def state_section(data: ReportData) -> Section:
    title, state = "State", data.state
    if state is None:
        return section("state", title, None, empty(NO_STATE))
    if not state.types:
        why = f"None of the {plural(state.streams, 'stream')} read contains State messages."
        return section("state", title, None, empty(why))
    entities = sum(one.entities for one in state.types)
    lead = (
        f"{plural(entities, 'entity', 'entities')} of {plural(state.all_types, 'type')}"
        f" in {plural(state.streams, 'stream')}, from {plural(state.messages, 'message')}."
    )
    cards = side_by_side(_entities(state), _churn(state)) if state.moments else _entities(state)
    growth = _growth(state) if state.moments else empty("The messages have no timestamps.")
    return section("state", title, lead, growth, cards, _type_table(state))


def joined_section(data: ReportData) -> Section:
    title = "Traffic and state"
    if data.state is None:
        return section("joined", title, None, empty(NO_STATE))
    if not data.pairs:
        why = "No stream has State messages or requests in the log."
        return section("joined", title, None, empty(why))
    lead = "How much each stream is read, compared with how much it holds."
    hot, unread = hot_pairs(data.pairs), unread_pairs(data.pairs)
    hot_bars = [
        Bar(name_of(p.stream), per, f"{count(per)} each", "good", _held(p))
        for p, per in ((p, p.reads / max(p.entities, 1)) for p in hot)
    ]
    unread_bars = [
        Bar(name_of(p.stream), p.entities, count(p.entities), "warn", _changed(p)) for p in unread
    ]
    lists = side_by_side(
        _short_list(
            "Hot streams with little state",
            "Most reads per entity.",
            hot_bars,
            "No stream has more reads than entities.",
        ),
        _short_list(
            "Large state without readers",
            "Most entities without a single read: candidates for a snapshot or for deletion.",
            unread_bars,
            "Every stream with state is read.",
        ),
    )
    chart = _pair_chart(data.pairs, hot, unread)
    return section("joined", title, lead, chart, lists, _pair_table(data))


def hot_pairs(pairs: Sequence[Pair]) -> list[Pair]:
    """From the busier half, those with the most reads per entity."""
    busy = sorted((p for p in pairs if p.reads), key=lambda p: -p.reads)
    busier = busy[: -(-len(busy) // 2)]
    little = [p for p in busier if p.reads > p.entities]
    return sorted(little, key=lambda p: -p.reads / max(p.entities, 1))[:LISTED]


def unread_pairs(pairs: Sequence[Pair]) -> list[Pair]:
    unread = [p for p in pairs if not p.reads and p.entities]
    return sorted(unread, key=lambda p: -p.entities)[:LISTED]


def _axis(state: State) -> TimeAxis:
    return time_axis([m.at_ms for m in state.moments], state.step_ms, 2 * MAX_SLOTS)


def _growth(state: State) -> Markup:
    """One line for each of the largest types; one for all others."""
    axis = _axis(state)
    own, rest = ([one.type for one in some] for some in _parted(state, LINES))
    lines = {name: [math.nan] * axis.slots for name in own}
    others = [math.nan] * axis.slots
    for moment in state.moments:
        slot = axis.slot(moment.at_ms)
        for name in own:
            lines[name][slot] = moment.entities.get(name, 0)
        others[slot] = sum(moment.entities.get(name, 0) for name in rest)
    series = [
        Series(_short(name), f"line-{number}", _held_on(values), count(_last(values)))
        for number, (name, values) in enumerate(lines.items(), 1)
    ]
    if rest:
        name = plural(state.all_types - len(own), "other type")
        series.append(Series(name, "line-rest", _held_on(others), count(_last(others))))
    scale = linear_scale([value for one in series for value in one.values], whole=True)
    note = f"Entities by type, per {step_name(state.step_ms)}."
    if state.left_out:
        note += f" Excludes {plural(state.left_out, 'change')} with timestamps in the future."
    return line_chart(Frame("Growth", note, axis, scale, count), series)


def _churn(state: State) -> Markup:
    axis = _axis(state)
    kinds = {"inserts": "good", "updates": "plain", "deletes": "bad"}
    values = {kind: [0.0] * axis.slots for kind in kinds}
    for moment in state.moments:
        slot = axis.slot(moment.at_ms)
        for kind in kinds:
            values[kind][slot] = getattr(moment, kind)
    series = [Series(kind, kinds[kind], of, count(sum(of))) for kind, of in values.items()]
    piles = [sum(pile) for pile in zip(*values.values(), strict=True)]
    note = f"Changes per {step_name(state.step_ms)}."
    scale = linear_scale(piles, whole=True)
    return stacked_chart(Frame("Churn", note, axis, scale, count, 150), series)


def _by_size(state: State) -> list[TypeState]:
    """Largest first; the entry for all others is last."""
    return sorted(state.types, key=lambda one: (not one.type, -one.entities))


def _parted(state: State, most: int) -> tuple[list[TypeState], list[TypeState]]:
    """The largest types by name, and the rest."""
    ordered = _by_size(state)
    own = [one for one in ordered[:most] if one.type]
    return own, ordered[len(own) :]


def _entities(state: State) -> Markup:
    own, rest = _parted(state, LISTED)
    bars = [Bar(name_of(one.type), one.entities, count(one.entities)) for one in own]
    if rest:
        number = sum(one.entities for one in rest)
        name = plural(state.all_types - len(own), "other type")
        bars.append(Bar(name, number, count(number), "dim"))
    return bar_list("Entities by type", "Current entities.", bars)


def _type_table(state: State) -> Markup:
    types = _by_size(state)
    changes = [one.inserts + one.updates + one.deletes for one in types]
    columns = [
        names("Type", [one.type for one in types], "(all others)"),
        numbers("Entities", [one.entities for one in types], count, bars=True),
        numbers("Streams", [one.streams for one in types], count),
        numbers("Inserts", [one.inserts for one in types], count),
        numbers("Updates", [one.updates for one in types], count),
        numbers("Deletes", [one.deletes for one in types], count),
        numbers("Changes", changes, count, bars=True),
        numbers(
            "Changes per entity",
            [ratio(number, one.entities) for number, one in zip(changes, types, strict=True)],
            count,
        ),
    ]
    named = sum(1 for one in types if one.type)
    note = f"{exact(named)} of {exact(state.all_types)}, by entities."
    return data_table("Types", note, columns)


def _pair_chart(pairs: Sequence[Pair], hot: Sequence[Pair], unread: Sequence[Pair]) -> Markup:
    """Zeros are on the edge."""
    style = {p.stream: HOT for p in hot} | {p.stream: UNREAD for p in unread}
    noted = [*unread[:3], *hot[:3]]
    ordered = [*noted, *(p for p in pairs if p not in noted)]
    points = [
        Point(
            visible(p.stream),
            max(p.entities, NONE),
            max(p.reads, NONE),
            style.get(p.stream, USUAL),
            f"{_short(p.stream, 60)}\n{plural(p.reads, 'read')}, {plural(p.readers, 'reader')}\n"
            f"{plural(p.entities, 'entity', 'entities')}, {plural(p.changes, 'change')}",
            labelled=number < len(noted),
        )
        for number, p in enumerate(ordered)
    ]
    meanings = [(HOT, "hot, little state"), (UNREAD, "state without readers"), (USUAL, "others")]
    across = Measure("entities", _with_none(p.entities for p in pairs), _or_none)
    up = Measure("reads", _with_none(p.reads for p in pairs), _or_none)
    note = "Each point is a stream."
    return scatter_chart("Reads and entities", note, points, across, up, meanings)


def _pair_table(data: ReportData) -> Markup:
    pairs = sorted(data.pairs, key=lambda p: (-p.reads, -p.entities))
    columns = [
        names("Stream", [p.stream for p in pairs], "(no stream)"),
        numbers("Reads", [p.reads for p in pairs], count, bars=True),
        numbers("Readers", [p.readers for p in pairs], count),
        numbers("Entities", [p.entities for p in pairs], count, bars=True),
        numbers("Growth", [_or_nan(p.growth) for p in pairs], _signed),
        numbers("Changed", [_or_nan(p.changed) for p in pairs], count),
        numbers("Bytes sent", [p.bytes_sent for p in pairs], size),
        numbers("Readers per entity", [ratio(p.readers, p.entities) for p in pairs], count),
        numbers("Bytes / changed", [ratio(p.bytes_sent, _or_nan(p.changed)) for p in pairs], size),
    ]
    note = (
        f"{exact(len(pairs))} of {exact(max(data.paired, len(pairs)))} streams. Growth and changed"
        " entities cover the days of the log, by message timestamps."
    )
    return data_table("Streams: traffic and state", note, columns, find="Find a stream")


def _short_list(title: str, note: str, bars: Sequence[Bar], otherwise: str) -> Markup:
    return bar_list(title, note, bars) if bars else empty(f"{title}: {otherwise}")


def _held(pair: Pair) -> str:
    return f"{plural(pair.reads, 'read')}, {plural(pair.entities, 'entity', 'entities')}"


def _changed(pair: Pair) -> str:
    return f"{plural(pair.changes, 'change')}, growth {_signed(_or_nan(pair.growth))}"


def _with_none(values: Iterable[int]) -> Scale:
    """A logarithmic scale with a separate place for zero, below one."""
    whole = log_scale([max(value, 1) for value in values])
    return Scale(NONE, whole.high, (NONE, *(tick for tick in whole.ticks if tick >= 1)), True)


def _or_none(value: float) -> str:
    return count(value) if value >= 1 else "0"


def _or_nan(value: int | None) -> float:
    return math.nan if value is None else value


def _signed(value: float) -> str:
    return f"+{count(value)}" if value > 0 else count(value)


def _short(name: str, most: int = 32) -> str:
    seen = visible(name) or "(none)"
    return seen if len(seen) <= most else seen[: most - 1] + "…"


def _held_on(values: Sequence[float]) -> list[float]:
    """Fill gaps with the previous value; values after the last one stay unknown."""
    end = max(slot for slot, value in enumerate(values) if math.isfinite(value)) + 1
    held, now = [], math.nan
    for value in values[:end]:
        now = value if math.isfinite(value) else now
        held.append(now)
    return held + [math.nan] * (len(values) - end)


def _last(values: Sequence[float]) -> float:
    return next(value for value in reversed(values) if math.isfinite(value))
