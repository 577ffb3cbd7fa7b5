"""Random statements of every kind, most of them nearly right: the input of `test_fuzz` for the SQL front end.

In the manner of SQLsmith: a grammar gives valid text, and mutations of its tokens give what people and their editors
make of it.
"""

import random
import re

FEW = ["1", "2", "5", "10", "60"]
NUMBERS = [
    "0",
    "1",
    "5",
    "10",
    "1000",
    "1.5",
    ".5",
    "1e3",
    "-1",
    "9" * 19,
    "9" * 40,
    "9" * 5000,
    "00007",
    "10L",
    "1.5D",
    "2BD",
    "3S",
    "1e400",
]
STRINGS = [
    "''",
    "'x'",
    "'10 seconds'",
    "'2024-05-01 12:30:00'",
    "'2024-02-31'",
    "'it''s'",
    "'²'",
    "'\\\\'",
    "'3:30'",
    "'today'",
    "'½'",
    "'1-2'",
]
ODD = [
    "²", "٣", "½", "é", "名", "\u00a0", "\u200b", "\ue000", "\ue0000\ue001", "\x00", "\ufeff", "🙂", "'", '"', "`",
    "``", "--", "/*", "*/", ";", ";;",
    "\\", "$", "?", ":x", "@", "#", "{", "}", "[", "]", "(", ")", "<", ">", "=>", "->", "::", ":", "||", "!", "~", "^",
    "%", "&", "|", "1__0", "0x1F", "1.2.3", "1e", "1a",
    "''", "' '", "\n", "\t", "\r\n", "*", ".", "..", ",", ",,", "=", "<=>", "INTERVAL", "/*+ x */", "-- x\n", "X'1F'",
    "b'x'", "r'x'", "DATE", "TIMESTAMP '2024'", "NULL", "N'x'",
]  # fmt: skip
WORDS = [
    "SELECT", "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "WINDOW", "EMIT EARLY EVERY", "INTO", "AS",
    "AND", "OR", "NOT", "IN", "BETWEEN", "IS NULL",
    "LIKE", "CASE", "WHEN", "THEN", "ELSE", "END", "RANGE", "ROWS", "SLIDE", "TUMBLING", "SESSION", "PARTITION BY",
    "ORIGIN", "ON", "BY ARRIVAL", "ALL", "UNION ALL",
    "UNION", "JOIN", "LEFT JOIN", "LEFT SEMI JOIN", "ANTI JOIN", "FULL OUTER JOIN", "CROSS JOIN", "NATURAL JOIN",
    "USING (k)", "LATERAL VIEW", "WITH x AS", "DISTINCT",
    "OVER (PARTITION BY k)", "FILTER (WHERE n > 1)", "WITHIN GROUP (ORDER BY n)", "QUALIFY", "TABLESAMPLE", "PIVOT",
    "VALUES", "EXISTS", "ROLLUP", "CUBE", "GROUPING SETS",
    "TABLE(TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' MINUTE))", "RETAIN", "ON ERROR STOP", "FROM STATE", "CREATE",
    "QUERY", "EXPLAIN", "DROP", "result_time", "window_end",
    "ROW", "UNBOUNDED", "NOW", "ASC", "DESC", "NULLS FIRST", "FETCH FIRST 1 ROW", "OFFSET 1", "EXCEPT", "INTERSECT",
    "WATERMARK FOR", "OPTIONS", "USING",
]  # fmt: skip
UNITS = ["SECONDS", "MINUTE", "MINUTES", "HOURS", "DAY", "MILLISECONDS", "WEEKS"]
ODD_UNITS = ["MONTH", "YEARS", "ROWS", "BLINKS"]
SHARED = ["k", "n", "big", "x", "s", "ts"]  # columns that most streams have
COLUMNS = [
    "f",
    "flag",
    "d",
    "day",
    "payload",
    "payload.field",
    "payload.inner.deep",
    "arr",
    "arr[0]",
    "t",
    "m",
    "nope",
    "`k`",
    "`a b`",
    "result_time",
    "window_end",
]
STREAMS = ["a", "b", "b", "b", "b"]
ODD_STREAMS = ["c", "i", "j", "d1", "d2", "seq", "ntz", "p", "w", "nope"]
SOURCES = ["x", "x", "y", "y", "z"]
TYPES = [
    "INT", "BIGINT", "STRING", "DOUBLE", "DECIMAL(10,2)", "DECIMAL(5)", "DECIMAL", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ",
    "ARRAY<INT>", "MAP<STRING, INT>", "STRUCT<q: INT>",
    "VARCHAR(3)", "BOOLEAN", "TINYINT", "FLOAT", "BINARY",
]  # fmt: skip
ODD_TYPES = [
    "DECIMAL(99)", "CHAR", "INTERVAL", "VARIANT", "STRING COLLATE UTF8_LCASE", "DECIMAL(²)", "NOPE",
    f"DECIMAL({'9' * 5000})", "DECIMAL(1,2,3)",
]  # fmt: skip
FUNCTIONS = [
    "abs", "sqrt", "upper", "substring", "concat", "coalesce", "nullif", "to_json", "length", "date_trunc", "hour",
    "year", "try_add", "try_divide", "greatest", "array",
    "struct", "named_struct", "isnull", "nvl", "if", "left", "trim",
]  # fmt: skip
ODD_FUNCTIONS = [
    "rand", "now", "explode", "row_number", "window", "unix_timestamp", "tumble", "hop", "session", "any",
]  # fmt: skip
AGGREGATES = [
    "count", "sum", "avg", "min", "max", "stddev", "var_pop", "first", "last", "any_value", "collect_list",
    "approx_count_distinct", "approx_percentile", "approx_top_k",
    "heavy_hitters",
]  # fmt: skip
ODD_AGGREGATES = ["count_if", "median", "max_by", "collect_set", "percentile", "grouping"]  # fmt: skip


class Grammar:
    """Statements from one random source."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.oddness = self.random.choice([0, 0, 0.02, 0.2])
        self.aliases, self.seen, self.grouped = ["r"], 0, False

    def pick(self, options):
        return self.random.choice(options)

    def mostly(self, usual, odd):
        return self.pick(odd if self.often(self.oddness) else usual)

    def often(self, chance):
        return self.random.random() < chance

    def some(self, make, least=1, most=3, between=", "):
        return between.join(make() for _ in range(self.random.randint(least, most)))

    def optional(self, chance, make):
        return f" {make()}" if self.often(chance) else ""

    # -- expressions ----------------------------------------------------------------------------------------------

    def column(self):
        name = self.mostly(SHARED, COLUMNS)
        qualified = len(self.aliases) > 1 or self.often(0.3)
        return f"{self.mostly(self.aliases, ['zz'])}.{name}" if qualified else name

    def number(self):
        return self.mostly(FEW, NUMBERS)

    def length(self):
        number, unit = self.number(), self.mostly(UNITS, ODD_UNITS)
        usual = [
            f"{number} {unit}",
            f"INTERVAL '{number}' {unit}",
            f"INTERVAL {number} {unit}",
            f"'{number} {unit}'",
            f"1 HOUR {number} MINUTES",
        ]
        fields = f"{self.pick(['MINUTE', 'HOUR', 'DAY', 'YEAR'])} TO {self.pick(['SECOND', 'MINUTE', 'HOUR', 'MONTH'])}"
        return self.mostly(
            usual,
            [number, self.pick(STRINGS), f"{self.pick(NUMBERS)} {unit}", f"INTERVAL {self.pick(STRINGS)} {fields}", ""],
        )

    def value(self, depth):
        if depth <= 0 or self.often(0.3):
            return self.mostly(
                [self.column(), self.column(), self.column(), self.pick(FEW), "'x'", "NULL"],
                [self.pick(NUMBERS), self.pick(STRINGS), "TRUE", "*", "INTERVAL " + self.pick(STRINGS)],
            )
        inner = lambda: self.value(depth - 1)  # noqa: E731
        kind = self.random.randrange(12)
        return [
            lambda: f"{inner()} {self.mostly(['+', '-', '*', '/', '%', '||'], ['DIV', '&', '|', '^'])} {inner()}",
            lambda: f"({inner()})",
            lambda: f"-{inner()}",
            lambda: f"{self.mostly(FUNCTIONS, ODD_FUNCTIONS)}({self.some(inner, 0, 3)})",
            lambda: (
                f"{self.mostly(AGGREGATES, ODD_AGGREGATES)}({self.optional(0.15, lambda: 'DISTINCT')} {self.value(0)})"
                if self.grouped or self.often(self.oddness)
                else inner()
            ),
            lambda: f"CAST({inner()} AS {self.mostly(TYPES, ODD_TYPES)})",
            lambda: (
                f"CASE {self.optional(0.3, inner)} WHEN {self.condition(depth - 1)} THEN "
                f"{inner()}{self.optional(0.5, lambda: 'ELSE ' + inner())} END"
            ),
            lambda: f"EXTRACT({self.pick(['HOUR', 'YEAR', 'DAY'])} FROM {inner()})",
            lambda: f"{inner()}::{self.mostly(TYPES, ODD_TYPES)}",
            lambda: (
                f"{self.pick(AGGREGATES)}({self.pick(['*', 'n', '1', 'x, 0.5', 's, 3', 'n, array(0.1, 0.9)'])})"
                if self.grouped and self.often(self.oddness)
                else "count(*)"
                if self.grouped
                else inner()
            ),
            lambda: f"{inner()}[{inner()}]",
            lambda: f"{self.pick(['DATE', 'TIMESTAMP', 'INTERVAL'])} {self.pick(STRINGS)}",
        ][kind]()

    def condition(self, depth):
        if depth <= 0 or self.often(0.25):
            return f"{self.value(0)} {self.pick(['=', '<', '<=', '>', '>=', '<>', '!=', '<=>', '=='])} {self.value(0)}"
        inner = lambda: self.condition(depth - 1)  # noqa: E731
        kind = self.random.randrange(9)
        return [
            lambda: f"{inner()} AND {inner()}",
            lambda: f"{inner()} OR {inner()}",
            lambda: f"NOT ({inner()})",
            lambda: f"{self.value(depth - 1)} {self.pick(['', 'NOT'])} IN ({self.some(lambda: self.value(0), 0, 4)})",
            lambda: f"{self.value(depth - 1)} {self.pick(['', 'NOT'])} BETWEEN {self.value(0)} AND {self.value(0)}",
            lambda: (
                f"{self.value(depth - 1)} IS {self.pick(['', 'NOT'])} {self.pick(['NULL', 'TRUE', 'DISTINCT FROM 1'])}"
            ),
            lambda: f"{self.value(depth - 1)} {self.pick(['LIKE', 'RLIKE', 'ILIKE'])} {self.pick(STRINGS)}",
            self.band,
            lambda: f"({inner()})",
        ][kind]()

    def band(self):
        left, right = self.pick(self.aliases), self.pick(self.aliases)
        bound = (
            f"{right}.ts {self.pick('+-')} INTERVAL {self.length()}"
            if self.often(0.8)
            else f"{right}.t - {self.pick(NUMBERS)}"
        )
        if self.often(0.3):
            return f"{left}.ts BETWEEN {right}.ts AND {bound}"
        return f"{left}.ts {self.pick(['<', '<=', '>=', '>', '='])} {bound}"

    # -- SELECT ---------------------------------------------------------------------------------------------------

    def join_window(self):
        return self.pick([
            f"[RANGE {self.length()}]", f"[RANGE {self.length()}]", "[RANGE ALL]", f"[ROWS {self.number()}]",
            f"[ROWS 5 PARTITION BY {self.some(lambda: self.mostly(SHARED, COLUMNS))}]",
            f"[TUMBLING {self.length()}{self.optional(0.3, self.origin)}]", "",
            f"[{self.mostly(['RANGE'], WORDS)} {self.length()}]",
        ])  # fmt: skip

    def origin(self):
        return self.mostly(
            ["ORIGIN TIMESTAMP '2024-05-01 12:30:00'"],
            [f"ORIGIN {self.pick(['TIMESTAMP', 'DATE', '', '-'])} {self.pick(STRINGS + NUMBERS)}"],
        )

    def slide_window(self):
        rows = f"{self.number()} ROWS"
        return self.pick([
            f"[RANGE {self.length()} SLIDE {self.length()}{self.optional(0.3, self.origin)}]",
            f"[RANGE 1 HOUR SLIDE {rows}{self.optional(0.3, lambda: 'BY ARRIVAL')}]",
            f"[RANGE {rows} SLIDE {rows}{self.optional(0.3, lambda: 'PARTITION BY ' + self.mostly(SHARED, COLUMNS))}]",
            f"[TUMBLING {self.length()}]", f"[SESSION {self.length()}]",
            f"[RANGE ALL SLIDE {self.length()}]",
            self.mostly(["[TUMBLING 1 HOUR]"],
             [f"[ROWS {self.number()}]", f"[RANGE {self.length()}]", f"[TUMBLING 1 HOUR ON {self.pick(SHARED)}]", "",
             f"[{self.pick(['HOP', 'TUMBLE', 'CUMULATE'])} {self.length()}]"]),
        ])  # fmt: skip

    def table(self, window):
        name = self.mostly(STREAMS, ODD_STREAMS)
        if self.often(0.12):
            name = f"({self.some(self.union_part, 2, 3, ' UNION ALL ')})"
        return f"{name} {window()} {self.aliases[self.seen]}"

    def union_part(self):
        name = self.mostly(["b"], STREAMS + ODD_STREAMS)
        return (
            name
            if self.often(0.4)
            else f"SELECT {self.mostly(['ts, k, n, x AS x', '*'], [self.some(self.column)])} FROM "
            f"{name}{self.optional(0.4, lambda: 'WHERE n > 1')}"
        )

    def tables(self, window):
        count = self.pick([1, 1, 2, 2, 3])
        self.aliases = ["r", "u", "v"][:count]
        self.seen = 0
        text = self.table(window)
        for self.seen in range(1, count):
            join = self.mostly(
                [", ", ", ", " JOIN ", " CROSS JOIN ", " INNER JOIN "],
                [" LEFT JOIN ", " LEFT SEMI JOIN ", " FULL OUTER JOIN "],
            )
            text += join + self.table(window)
            if "JOIN" in join and self.often(0.8):
                text += f" ON {self.condition(1)}"
        return text

    def select(self):
        grouped = self.grouped = self.often(0.45)
        self.aliases, self.seen = ["r"], 0
        tables = self.tables(
            (self.slide_window if self.often(0.7) else lambda: "[RANGE 1 HOUR SLIDE 1 MINUTE]")
            if grouped
            else self.join_window
        )
        equal = " AND ".join(f"r.k = {other}.k" for other in self.aliases[1:])
        where = " AND ".join(
            c for c in (equal if self.often(0.8) else "", self.condition(2) if self.often(0.6) else "") if c
        )
        items = self.some(
            lambda: (
                self.value(2)
                + self.optional(
                    0.4, lambda: "AS " + self.mostly(["c1", "c2"], ["k", "window_end", "result_time", "`q`"])
                )
            ),
            1,
            4,
        )
        text = f"SELECT{self.optional(0.08, lambda: 'DISTINCT')} {'*' if self.often(0.1) else items} FROM {tables}"
        text += f" WHERE {where}" if where else ""
        if grouped:
            text += self.optional(
                0.8, lambda: f"GROUP BY {self.some(lambda: self.column() if self.often(0.8) else self.value(1))}"
            )
            text += self.optional(0.3, lambda: f"HAVING {self.condition(2)}")
            text += self.optional(0.15, lambda: f"ORDER BY {self.value(1)} DESC LIMIT {self.number()}")
            text += self.optional(0.15, lambda: f"EMIT EARLY EVERY {self.length()}")
        else:
            text += self.optional(0.1, lambda: f"WINDOW {self.length()}")
            text += self.optional(0.1, lambda: "ORDER BY result_time")
        return text

    def view_select(self):
        self.grouped = self.often(0.5)
        names = self.random.choices(SOURCES, k=self.pick([1, 2, 2, 3]))
        self.aliases, self.seen = ["r", "u", "v"][: len(names)], 0
        tables = ", ".join(f"{name} {alias}" for name, alias in zip(names, self.aliases, strict=True))
        where = " AND ".join(
            [*(f"r.k = {other}.k" for other in self.aliases[1:]), *([self.condition(2)] if self.often(0.5) else [])]
        )
        group = self.optional(
            0.8 * self.grouped,
            lambda: f"GROUP BY {self.some(lambda: self.column() if self.often(0.8) else self.value(1))}",
        )
        return (
            f"SELECT {self.some(lambda: self.value(2), 1, 4)} FROM {tables}{' WHERE ' + where if where else ''}{group}"
        )

    # -- statements -----------------------------------------------------------------------------------------------

    def name(self):
        return self.mostly(["q"], ["q2", "`q q`", "_q", "p", "a", "SELECT", "名", "1q", "'q'"])

    def options(self):
        def option():
            return self.pick(["path", "a.b", "format", "'k'"]) + " " + self.pick(STRINGS + NUMBERS[:5] + ["TRUE", "x"])

        return f"OPTIONS ({self.some(option, 0, 3)})"

    def query(self):
        clauses = self.optional(0.15, lambda: f"RETAIN {self.length()}") + self.optional(
            0.1, lambda: f"ON ERROR {self.mostly(['SKIP', 'STOP'], ['X'])}"
        )
        clauses += self.optional(0.1, lambda: f"FROM {self.mostly(['NOW', 'STATE'], ['a'])}")
        into = self.optional(
            0.2, lambda: f"INTO {self.pick(['json ' + self.options(), chr(39) + 'out' + chr(39), 'x'])}"
        )
        return (
            f"{self.pick(['CREATE', 'CREATE OR REPLACE', 'ALTER'])} QUERY {self.name()}{clauses} AS "
            f"{self.select()}{into}"
        )

    def stream(self):
        columns = self.some(
            lambda: f"{self.pick(['k', 'n', 'x', 's'])}{self.random.randrange(99)} {self.mostly(TYPES, ODD_TYPES)}",
            1,
            4,
        )
        time = self.pick(["ts", "t", "k"])
        delay = self.optional(
            0.7, lambda: f"AS {time} - {self.mostly([self.length()], [self.pick(NUMBERS), '100 ROWS'])}"
        )
        more = self.optional(0.2, lambda: f", SEQUENCE BY {self.pick(SHARED)}")
        clauses = "".join(
            self.optional(0.12, lambda clause=clause: clause)
            for clause in (
                "ORDERED",
                "LATE DROP",
                "BAD ERROR",
                f"IDLE {self.length()}",
                f"HEARTBEAT {self.length()}",
                "PUNCTUATION k BY (n)",
                "PUNCTUATION FROM b",
            )
        )
        return (
            f"CREATE STREAM {self.name()} ({columns}, {time} "
            f"{self.mostly(['TIMESTAMP', 'DATE'], ['BIGINT', 'STRING'])}, WATERMARK FOR "
            f"{time}{delay}{more}){clauses} USING rate {self.optional(0.3, self.options)}"
        )

    def statement(self):
        kind = self.random.random()
        if kind < 0.6:
            return self.query()
        if kind < 0.7:
            return self.stream()
        if kind < 0.8:
            every = self.optional(0.3, lambda: f"REFRESH EVERY {self.length()}")
            return (
                f"CREATE MATERIALIZED VIEW {self.name()}{every}{self.optional(0.2, lambda: 'MAINTAIN BY sweep')} "
                f"AS {self.view_select()}"
            )
        if kind < 0.9:
            return f"EXPLAIN {self.select()}"
        return self.pick([
            (f"CREATE SOURCE {self.name()} (k {self.mostly(TYPES, ODD_TYPES)}) "
            f"USING {self.pick(['parquet', 'postgres', 'x'])} {self.options()} "
            f"KEY (k) CHANGES BY {self.pick(['SNAPSHOT', 'TABLE t.u', 'X'])}"),
            (f"DROP {self.pick(['QUERY', 'STREAM', 'VIEW', 'SOURCE', 'TABLE'])} {self.pick(['', 'IF EXISTS'])} "
            f"{self.name()} {self.pick(['', 'PURGE'])}"),
            f"ALTER STREAM {self.name()} ADVANCE TO {self.pick(['TIMESTAMP', '', '-'])} {self.pick(STRINGS + NUMBERS)}",
            f"SHOW {self.pick(['QUERIES', 'STREAMS', 'VIEWS', 'SOURCES', 'TABLES'])}",
            f"EXPLAIN {self.pick(['', 'QUERY', 'VIEW'])} {self.name()}", f"REFRESH VIEW {self.name()} FULL",
        ])  # fmt: skip

    # -- mutations ------------------------------------------------------------------------------------------------

    def mutated(self, text):
        for _ in range(self.random.randint(1, 3)):
            tokens = re.findall(r"\s+|\w+|'[^']*'|.", text, re.DOTALL)
            place = self.random.randrange(len(tokens) + 1)
            change = self.random.randrange(9)
            if change == 0:
                tokens[place : place + 1] = []
            elif change == 1:
                tokens[place:place] = [f" {self.pick(ODD)} "]
            elif change == 2:
                tokens[place : place + 1] = [self.pick(ODD)]
            elif change == 3:
                tokens[place:place] = [f" {self.pick(WORDS)} "]
            elif change == 4:
                tokens[place : place + 1] = [f" {self.pick(WORDS)} "]
            elif change == 5:
                tokens[place:place] = tokens[place - 6 : place]
            elif change == 6:
                tokens = tokens[:place]
            elif change == 7:
                tokens[place:place] = [f" {self.pick(NUMBERS + STRINGS)} "]
            else:
                deep = self.pick([40, 2000])
                around = self.pick(
                    [
                        ("(", ")"),
                        ("NOT ", ""),
                        ("- ", ""),
                        ("abs(", ")"),
                        ("CASE WHEN ", " END"),
                        ("[", "]"),
                        ("n + ", ""),
                        ("ARRAY<", ">"),
                        ("1 = 1 AND ", ""),
                    ]
                )
                tokens[place : place + 1] = [around[0] * deep, *tokens[place : place + 1], around[1] * deep]
            text = "".join(tokens)
        return text

    def any(self):
        text = self.statement()
        return self.mutated(text) if self.often(0.4) else text
