"""Spark's functions by their role in a standing query: refused, aggregating, or never raising.

The lists are closed. A function on none of them is left to Spark and counts as one that may raise.
"""

from __future__ import annotations

# Their value depends on more than the row, so two evaluations of one row may differ.
NON_DETERMINISTIC = frozenset({
    "rand", "random", "randn", "uuid", "shuffle", "randstr", "uniform", "current_timestamp", "now", "current_date",
    "curdate", "current_time", "localtimestamp", "monotonically_increasing_id", "input_file_name",
    "input_file_block_start", "input_file_block_length", "spark_partition_id", "current_user", "session_user", "user",
    "current_catalog", "current_database", "current_schema", "reflect", "java_method", "try_reflect",
})  # fmt: skip

# Without parentheses these are still calls, not columns.
WITHOUT_PARENTHESES = frozenset({
    "current_timestamp", "current_date", "current_time", "localtimestamp", "current_user", "session_user",
})  # fmt: skip

# Supported aggregates, with their names in the model.
ANSWERED_AGGREGATES = {
    "count": "count", "sum": "sum", "avg": "avg", "mean": "avg", "min": "min", "max": "max", "stddev": "stddev_samp",
    "std": "stddev_samp", "stddev_samp": "stddev_samp", "stddev_pop": "stddev_pop", "variance": "var_samp",
    "var_samp": "var_samp", "var_pop": "var_pop", "approx_count_distinct": "approx_count_distinct",
    "approx_percentile": "approx_percentile", "percentile_approx": "approx_percentile", "approx_top_k": "approx_top_k",
    "heavy_hitters": "heavy_hitters", "first": "first", "first_value": "first", "last": "last", "last_value": "last",
    "any_value": "any_value", "collect_list": "collect_list", "array_agg": "collect_list",
}  # fmt: skip

# The others, refused by name.
AGGREGATES = frozenset({
    "any", "bit_and", "bit_or", "bit_xor", "bitmap_construct_agg", "bitmap_or_agg", "bool_and", "bool_or",
    "collect_set", "corr", "count_if", "count_min_sketch", "covar_pop", "covar_samp", "every", "grouping",
    "grouping_id", "histogram_numeric", "hll_sketch_agg", "hll_union_agg", "kurtosis", "listagg", "max_by", "median",
    "min_by", "mode", "percentile", "percentile_cont", "percentile_disc", "regr_avgx", "regr_avgy", "regr_count",
    "regr_intercept", "regr_r2", "regr_slope", "regr_sxx", "regr_sxy", "regr_syy", "schema_of_variant_agg", "skewness",
    "some", "string_agg", "try_avg", "try_sum",
})  # fmt: skip

# Equivalents of some of them.
INSTEAD_OF = {
    "count_if": "count(CASE WHEN .. THEN 1 END)", "collect_set": "collect_list(DISTINCT ..)",
    "median": "approx_percentile(.., 0.5)",
    "percentile": "approx_percentile(.., 0.5)", "percentile_cont": "approx_percentile(.., 0.5)",
    "percentile_disc": "approx_percentile(.., 0.5)", "bool_and": "min(..)", "every": "min(..)", "bool_or": "max(..)",
    "any": "max(..)", "some": "max(..)", "mode": "approx_top_k(.., 1)", "listagg": "collect_list(..)",
    "string_agg": "collect_list(..)", "try_sum": "sum(..)", "try_avg": "avg(..)",
}  # fmt: skip

GENERATORS = frozenset({
    "explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer", "stack", "json_tuple",
    "variant_explode", "variant_explode_outer",
})  # fmt: skip

WINDOW_FUNCTIONS = frozenset({
    "row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile", "lag", "lead", "nth_value",
})  # fmt: skip

# They return a nested type for any arguments.
CONSTRUCTORS = {
    "struct": "struct", "named_struct": "struct", "array": "array", "map": "map", "map_from_arrays": "map",
    "map_from_entries": "map",
    "from_json": "struct", "split": "array", "sequence": "array",
}  # fmt: skip

# Total on strings: if every argument is a string, none raises. Result types by name.
STRING_FUNCTIONS = {
    "upper": "string", "lower": "string", "ucase": "string", "lcase": "string", "initcap": "string",
    "trim": "string", "ltrim": "string", "rtrim": "string", "btrim": "string", "reverse": "string",
    "concat": "string", "replace": "string", "translate": "string", "soundex": "string",
    "length": "int", "char_length": "int", "character_length": "int", "len": "int", "octet_length": "int",
    "bit_length": "int", "instr": "int", "levenshtein": "int", "ascii": "int",
    "startswith": "boolean", "endswith": "boolean", "contains": "boolean",
}  # fmt: skip

# Total on a string and integer literals.
SUBSTRING_FUNCTIONS = frozenset({"substring", "substr", "left", "right"})

# Total on double or float: IEEE arithmetic returns NaN or infinity, it does not raise.
FLOATING_FUNCTIONS = frozenset({
    "abs", "sqrt", "cbrt", "exp", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "signum",
    "sign", "degrees", "radians", "isnan", "ln", "log10", "log2", "log1p", "expm1",
})  # fmt: skip

# Total on date, timestamp and timestamp_ntz: parts of a time, all integers.
TIME_PARTS = frozenset({
    "year", "quarter", "month", "day", "dayofmonth", "dayofweek", "weekday", "dayofyear", "weekofyear",
})  # fmt: skip
CLOCK_PARTS = frozenset({"hour", "minute", "second"})  # not of a date, which Spark would have to cast

# They return NULL where their plain form raises; their operands must still be numbers.
TRY_ARITHMETIC = frozenset({"try_add", "try_subtract", "try_multiply", "try_divide", "try_mod"})

# Their value is one of their operands.
CHOICE_FUNCTIONS = frozenset({"coalesce", "nvl", "ifnull", "nullif"})
NULL_TESTS = frozenset({"isnull", "isnotnull"})
