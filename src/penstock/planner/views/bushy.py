"""Segmented bushy trees: groups of relations joined at the same time, and a last segment that joins their results.

After Liu 2005, ch. 3. A group is a pipelined segment of its own. Groups depend only on relations, and only the last
segment depends on groups. If not all tables fit in memory, the join is first split into pieces, and each piece is
composed this way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil

from penstock.planner.views.relations import Members, Relations
from penstock.planner.views.shape_cost import Costs, rows_of, segment_time
from penstock.planner.views.shapes import (
    SEGMENTED_BUSHY,
    Preference,
    Segment,
    Shape,
    cut,
    exchanges,
    largest,
    minimized_work,
    ordered,
)

MANY = 1.5  # times the average: a relation with more rows gets a group of its own
BREADTH = 400  # candidates for a group that are kept at each size

Price = Callable[[Shape], float]
Judge = Callable[[Relations, Members, int], float]


# -- groups -----------------------------------------------------------------------------------------------------------


def by_cost(costs: Costs, cores: int) -> Judge:
    """Prefer groups whose pipelined segment is fast."""

    def judge(relations: Relations, members: Members, probe: int) -> float:
        shape, segment = _alone(relations, members, probe)
        redirected = exchanges(relations, shape, segment) > 0
        return segment_time(rows_of(relations, shape, segment), costs, cores, redirected=redirected)

    return judge


def by_key(relations: Relations, members: Members, probe: int) -> float:
    """Prefer groups on one join key: the fewest exchanges within."""
    shape, segment = _alone(relations, members, probe)
    return exchanges(relations, shape, segment)


def by_output(relations: Relations, members: Members, probe: int) -> float:  # noqa: ARG001  (a judge is told the probe)
    """Prefer groups with few result rows."""
    return relations.size(members)


def _alone(relations: Relations, members: Members, probe: int) -> tuple[Shape, Segment]:
    """The segment of a group, in a shape that is complete only if the group is."""
    segment = Segment(probe, ordered(relations, probe, members - {probe}))
    rest = tuple(sorted(relations.all - members))
    last = (Segment(relations.count, rest, wave=1),) if rest else ()
    return Shape(SEGMENTED_BUSHY, relations.count, (segment, *last)), segment


def groups(relations: Relations, most: int, judge: Judge) -> list[tuple[int, Members]]:
    """Algorithm 1: groups as (probe, members) of at most `most` relations, until no two remaining relations are joined.

    Each time the largest free relation probes, with the best connected set around it. The rest are groups of one.
    """
    if most < 2:
        raise ValueError(f"a group has at least two relations, not {most}")
    found: list[tuple[int, Members]] = []
    free = relations.all
    while any(len(part) > 1 for part in relations.components(free)):
        probe = largest(relations, free)
        near = next(part for part in relations.components(free) if probe in part)
        candidates = around(relations, probe, near, min(most, len(near)), judge)
        members = min(candidates, key=lambda m: (judge(relations, m, probe), sorted(m)))
        found.append((probe, members))
        free -= members
    return found + [(left, frozenset((left,))) for left in sorted(free)]


def around(relations: Relations, probe: int, within: Members, size: int, judge: Judge) -> list[Members]:
    """The connected sets of a size that contain the probe; of very many, those grown from the best smaller ones."""
    sets = [frozenset((probe,))]
    for _ in range(size - 1):
        larger = {s | {n} for s in sets for n in relations.neighbours(s) & within}
        sets = sorted(larger, key=sorted)
        if len(sets) > BREADTH:
            sets = sorted(sets, key=lambda m: (judge(relations, m, probe), sorted(m)))[:BREADTH]
    return sets


# -- the whole tree ---------------------------------------------------------------------------------------------------


def allocate(cores: int, builds: Sequence[float]) -> tuple[int, ...] | None:
    """Cores for each segment in proportion to the rows it builds, at least one each, the rest for the last segment.

    None if there are fewer cores than segments: then they run one after the other.
    """
    if cores < len(builds):
        return None
    total = sum(builds)
    shares = [int(cores * rows / total) if total > 0 else cores // len(builds) for rows in builds[:-1]]
    given = [*shares, cores - sum(shares)]
    while min(given) < 1:
        given[max(range(len(given)), key=lambda n: (given[n], -builds[n]))] -= 1
        given[given.index(min(given))] += 1
    return tuple(given)


def probe_steps(sizes: Sequence[int], chosen: int) -> int:
    """Tables that a row of the chosen group's probe visits until it is a result."""
    return sizes[chosen] - 1 + len(sizes) - 1


def fewest_steps(relations: Relations, parts: Sequence[Members]) -> int:
    """The group (not a single relation) whose rows visit the fewest tables; ties go to the one with the most rows."""
    sizes = [len(part) for part in parts]
    several = [n for n, part in enumerate(parts) if len(part) > 1] or list(range(len(parts)))
    return min(several, key=lambda n: (probe_steps(sizes, n), -relations.size(parts[n]), n))


def largest_result(relations: Relations, parts: Sequence[Members]) -> int:
    """The first rule of the thesis: the group with the most rows. The larger the groups, the slower it is (3.4.2)."""
    return max(range(len(parts)), key=lambda n: (relations.size(parts[n]), -n))


FinalProbe = Callable[[Relations, Sequence[Members]], int]
FINAL_PROBES: dict[str, FinalProbe] = {"fewest_steps": fewest_steps, "largest": largest_result}


def compose(
    relations: Relations, most: int, judge: Judge, cores: int, final: str | FinalProbe = "fewest_steps"
) -> tuple[Segment, ...]:
    """The segments of a bushy tree with groups of at most `most` relations; for a single group, its segment.

    Groups run at the same time if there is a core for each, else one after the other.
    """
    found = groups(relations, most, judge)
    if len(found) == 1:
        ((probe, members),) = found
        return (Segment(probe, ordered(relations, probe, members - {probe})),)
    parts = [members for _, members in found]
    joined = relations.contracted(parts)
    last = (FINAL_PROBES[final] if isinstance(final, str) else final)(relations, parts)
    order = (last, *ordered(joined, last, joined.all - {last}))
    inputs: dict[int, int] = {}
    segments: list[Segment] = []
    for number, (probe, members) in enumerate(found):
        if len(members) == 1:
            inputs[number] = probe
        else:
            inputs[number] = relations.count + len(segments)
            segments.append(Segment(probe, ordered(relations, probe, members - {probe})))
    shares = share_of_wave(relations, segments, cores)
    placed = [Segment(s.probe, s.builds, wave, share) for s, (wave, share) in zip(segments, shares, strict=True)]
    after = max(wave for wave, _ in shares) + 1
    return (*placed, Segment(inputs[last], tuple(inputs[n] for n in order[1:]), after))


def share_of_wave(relations: Relations, segments: Sequence[Segment], cores: int) -> list[tuple[int, int]]:
    """(wave, cores) of each group, cores by the rows that it reads. The last segment follows them, on all cores.

    On Spark a stage starts when its inputs are ready, so cores reserved for the last segment would be idle.
    """
    shares = allocate(cores, [sum(relations.rows[i] for i in s.inputs) for s in segments])
    return [(number, 0) for number in range(len(segments))] if shares is None else [(0, share) for share in shares]


def segmented_bushy(
    relations: Relations, most: int, judge: Judge, cores: int, final: str | FinalProbe = "fewest_steps"
) -> Shape:
    return Shape(SEGMENTED_BUSHY, relations.count, compose(relations, most, judge, cores, final))


def size_by_heuristic(relations: Relations) -> int:
    """As many groups as relations far above the average, at least two and at most half of all; the resulting size."""
    average = sum(relations.rows) / relations.count
    large = sum(rows > MANY * average for rows in relations.rows)
    return max(2, ceil(relations.count / max(2, min(large, relations.count // 2))))


def cheapest_bushy(relations: Relations, judge: Judge, cores: int, price: Price) -> Shape:
    """The group size by cost: every size from half of the relations down to two, with both rules for the last probe."""
    sizes = range(max(2, ceil(relations.count / 2)), 1, -1)
    shapes = [segmented_bushy(relations, size, judge, cores, final) for size in sizes for final in FINAL_PROBES]
    return min(shapes, key=price)


# -- short of memory --------------------------------------------------------------------------------------------------


def pieced_bushy(
    relations: Relations,
    memory: float,
    most: int,
    judge: Judge,
    cores: int,
    prefer: Preference = minimized_work,
) -> Shape:
    """Algorithm 2: pieces whose tables fit, one after the other, each composed as a bushy tree.

    A piece stays one segment if the results of its groups would not fit as tables.
    """
    if relations.count == 1:
        return Shape(SEGMENTED_BUSHY, 1, (Segment(0, ()),))
    pieces = cut(relations, memory, prefer)
    members: list[Members] = [frozenset((n,)) for n in range(relations.count)]
    number_of: dict[int, int] = {}  # a piece -> its last segment
    segments: list[Segment] = []
    for number, (probe, builds) in enumerate(pieces):
        inputs = (probe, *builds)
        whole = frozenset[int]().union(*(members[i] for i in inputs))
        piece = _within(relations, [members[i] for i in inputs])
        parts = compose(piece, most, judge, cores)
        if table_bytes(Shape(SEGMENTED_BUSHY, piece.count, parts), piece) > memory:
            parts = (Segment(0, tuple(range(1, len(inputs)))),)
        first = relations.count + len(segments)
        wave = max((s.wave for s in segments), default=-1) + 1

        def named(i: int, inputs: tuple[int, ...] = inputs, first: int = first) -> int:
            if i >= len(inputs):
                return first + i - len(inputs)
            return inputs[i] if inputs[i] < relations.count else number_of[inputs[i]]

        for part in parts:
            stored = part is parts[-1] and number < len(pieces) - 1
            builds_here = tuple(named(b) for b in part.builds)
            segments.append(Segment(named(part.probe), builds_here, wave + part.wave, part.cores, stored))
        number_of[relations.count + number] = relations.count + len(segments) - 1
        members.append(whole)
    return Shape(SEGMENTED_BUSHY, relations.count, tuple(segments))


def _within(relations: Relations, parts: Sequence[Members]) -> Relations:
    """The join of these parts alone, each as one relation."""
    inside = frozenset[int]().union(*parts)
    rest = [frozenset((m,)) for m in sorted(relations.all - inside)]
    whole = relations.contracted([*parts, *rest])
    ties = tuple(tie for tie in whole.ties if max(tie.left, tie.right) < len(parts))
    return Relations(whole.rows[: len(parts)], ties, whole.widths[: len(parts)])


def table_bytes(shape: Shape, relations: Relations) -> float:
    """The peak memory of tables that exist at the same time: those of a piece.

    The tables of a piece's last segment are filled while its groups still run, so they count together.
    """
    most = piece = 0.0
    for wave in shape.waves:
        piece += sum(relations.memory(shape.members[b]) for s in wave for b in s.builds)
        most = max(most, piece)
        if any(segment.stored for segment in wave):
            piece = 0.0
    return most
