"""A query as lines that a person can check against its text."""

from penstock.model import Expression, Query, Ref
from penstock.model.time import format_duration


def dump(query: Query) -> str:
    def name(ref: Ref) -> str:
        return ref.column if ref.role < 0 else f"{query.roles[ref.role].alias}.{ref.column}"

    def facts(expression: Expression) -> str:
        words = [*(["kernel"] if expression.term else []), *(["total"] if expression.total else [])]
        return f"  [{', '.join(words)}]" if words else ""

    lines = []
    for role in query.roles:
        window = (
            "none"
            if role.window is None
            else "all"
            if role.window.length is None
            else format_duration(role.window.length)
        )
        lines.append(f"role {role.alias}: {role.stream}, window {window}")
    lines.extend("key " + " = ".join(e.sql(name) for e in key) for key in query.keys)
    for band in query.bands:
        earlier, later = query.roles[band.earlier].alias, query.roles[band.later].alias
        lines.append(f"band {later} - {earlier} <= {format_duration(band.upper)}")
    lines.extend(f"predicate {e.sql(name)}{facts(e)}" for e in query.predicates)
    lines.extend(f"residual {e.sql(name)}{facts(e)}" for e in query.residuals)
    lines.append("select " + ", ".join(f"{i.expression.sql(name)} AS {i.name}" for i in query.items))
    if query.ordered:
        lines.append("order result_time")
    return "\n".join(lines)
