"""A query as lines that a person can check against its text."""

from penstock.model import (
    Aggregate,
    Expression,
    Landmark,
    PerRow,
    Query,
    Ref,
    Role,
    Rows,
    Session,
    Sliding,
    SlidingRows,
    SortKey,
    Tumbling,
    Window,
)
from penstock.model.time import format_duration


def dump(query: Query) -> str:
    def name(ref: Ref) -> str:
        return ref.column if ref.role < 0 else f"{query.roles[ref.role].alias}.{ref.column}"

    def facts(expression: Expression) -> str:
        words = [*(["kernel"] if expression.term else []), *(["total"] if expression.total else [])]
        return f"  [{', '.join(words)}]" if words else ""

    def call(aggregate: Aggregate) -> str:
        argument = "*" if aggregate.argument is None else aggregate.argument.sql(name)
        constants = "".join(f", {p}" for p in aggregate.parameters)
        return f"{aggregate.function}({'DISTINCT ' if aggregate.distinct else ''}{argument}{constants})"

    lines = [f"role {role.alias}: {_streams(role)}, window {_window(role)}" for role in query.roles]
    lines.extend("key " + " = ".join(e.sql(name) for e in key if e is not None) for key in query.keys)
    for band in query.bands:
        earlier, later = query.roles[band.earlier].alias, query.roles[band.later].alias
        lines.append(f"band {later} - {earlier} <= {format_duration(band.upper)}")
    lines.extend(f"predicate {e.sql(name)}{facts(e)}" for e in query.predicates)
    lines.extend(f"residual {e.sql(name)}{facts(e)}" for e in query.residuals)
    if query.aggregation is not None:
        lines.extend(f"group g{i} = {g.expression.sql(name)}" for i, g in enumerate(query.aggregation.groups))
        lines.extend(f"aggregate a{i} = {call(a)}" for i, a in enumerate(query.aggregation.aggregates))
        if query.aggregation.window is None:
            lines.append("closed by progress of all times")
        if query.aggregation.having is not None:
            lines.append(f"having {query.aggregation.having.sql(name)}{facts(query.aggregation.having)}")
        if query.aggregation.emit is not None:
            lines.append(f"emit early every {format_duration(query.aggregation.emit.every)}")
    if query.aggregation is not None and query.aggregation.top is not None:
        keys = ", ".join(f"{k.expression.sql(name)} {_direction(k)}" for k in query.aggregation.top.keys)
        lines.append(f"first {query.aggregation.top.count} by {keys}")
    lines.append("select " + ", ".join(f"{i.expression.sql(name)} AS {i.name}" for i in query.items))
    if query.ordered:
        lines.append("order result_time")
    return "\n".join(lines)


def _direction(key: SortKey) -> str:
    return f"{'desc' if key.descending else 'asc'} nulls {'first' if key.nulls_first else 'last'}"


def _streams(role: Role) -> str:
    return " + ".join((role.stream, *role.union)) + (f" by {role.on}" if role.on else "")


def _window(role: Role) -> str:
    match role.window:
        case None:
            return "none"
        case Window(None):
            return "all"
        case Window(int() as length):
            return format_duration(length)
        case Rows(count, partition):
            return f"{count} rows{' of each ' + ', '.join(partition) if partition else ''}"
        case Tumbling(length, origin):
            return f"tumbling {format_duration(length)}{f' from {origin}' if origin else ''}"
        case Sliding(length, slide, origin):
            every = f"{format_duration(length)} every {format_duration(slide)}"
            return every if origin is None else f"{every} from {origin}"
        case Landmark(slide, origin):
            return f"all every {format_duration(slide)}" + (f" from {origin}" if origin is not None else "")
        case SlidingRows(length, slide, partition):
            return f"{length} rows every {slide} rows{' of each ' + ', '.join(partition) if partition else ''}"
        case PerRow(length, rows, partition, arrival):
            of_each = f" of each {', '.join(partition)}" if partition else ""
            return f"{format_duration(length)} every {rows} rows{of_each}{' by arrival' if arrival else ''}"
        case Session(gap):
            return f"session {format_duration(gap)}"
