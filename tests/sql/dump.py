"""A query as lines that a person can check against its text."""

from penstock.model import Expression, Query, Ref, Role, Rows, Tumbling, Window
from penstock.model.time import format_duration


def dump(query: Query) -> str:
    def name(ref: Ref) -> str:
        return ref.column if ref.role < 0 else f"{query.roles[ref.role].alias}.{ref.column}"

    def facts(expression: Expression) -> str:
        words = [*(["kernel"] if expression.term else []), *(["total"] if expression.total else [])]
        return f"  [{', '.join(words)}]" if words else ""

    lines = [f"role {role.alias}: {role.stream}, window {_window(role)}" for role in query.roles]
    lines.extend("key " + " = ".join(e.sql(name) for e in key if e is not None) for key in query.keys)
    for band in query.bands:
        earlier, later = query.roles[band.earlier].alias, query.roles[band.later].alias
        lines.append(f"band {later} - {earlier} <= {format_duration(band.upper)}")
    lines.extend(f"predicate {e.sql(name)}{facts(e)}" for e in query.predicates)
    lines.extend(f"residual {e.sql(name)}{facts(e)}" for e in query.residuals)
    lines.append("select " + ", ".join(f"{i.expression.sql(name)} AS {i.name}" for i in query.items))
    if query.ordered:
        lines.append("order result_time")
    return "\n".join(lines)


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
