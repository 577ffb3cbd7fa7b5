from dataclasses import replace

import pytest
from hypothesis import given, settings

from penstock.errors import RegistrationError
from penstock.model import Column, Expression, Query, Ref, Role, Stream, Window
from penstock.model.time import FOREVER
from penstock.planner.build import build_network
from penstock.planner.join import result_column
from penstock.planner.network import StandingQuery
from penstock.planner.routes import build_routes
from penstock.planner.state_table import MAX_ROLES
from penstock.reference import bounds
from penstock.sql import parse_query
from tests.effort import examples
from tests.workloads import workload

COLUMNS = (
    Column("at", "timestamp"),
    Column("k", "bigint"),
    Column("i", "int"),
    Column("s", "string"),
    Column("d", "double"),
    Column("v", "bigint"),
    Column("w", "bigint"),
)
STREAMS = {name: Stream(name, COLUMNS, "at", delay=0) for name in "abc"}
PAIR = "SELECT x.v FROM a [RANGE 10 SECONDS] x, b [RANGE 20 SECONDS] y WHERE x.k = y.k"


def network_of(*texts, streams=STREAMS, first=1):
    queries = [StandingQuery(first + n, f"q{first + n}", parse_query(t, streams)) for n, t in enumerate(texts)]
    return build_network(queries, streams)


def table(network, name):
    return next(t for t in network.tables if t.name == name)


def text_of(network, name):
    parts = next(d.parts for d in network.derived if d.name == name)
    return "".join(p if isinstance(p, str) else p.column for p in parts)


# ---------------------------------------------------------------------------------------------------------- sharing


def test_queries_over_the_same_streams_and_key_share_a_join_in_any_order_of_from():
    turned = "SELECT y.w FROM b [RANGE 7 SECONDS] y, a [RANGE 3 SECONDS] x WHERE y.k = x.k"
    network = network_of(PAIR, turned)
    (join,) = network.joins
    assert join.name == "a(k) x b(k)"
    assert [(m.name, m.bit, m.roles) for m in join.members] == [("q1", 0, (0, 1)), ("q2", 1, (1, 0))]
    assert [m.bounds[0][1] for m in join.members] == [9_999_999, 2_999_999]
    assert [m.bounds[1][0] for m in join.members] == [19_999_999, 6_999_999]


def test_queries_share_a_join_whatever_the_order_of_their_conditions():
    one = "SELECT x.v FROM a [RANGE 5 SECONDS] x, b [RANGE 5 SECONDS] y WHERE x.k = y.k AND x.s = y.s"
    other = "SELECT x.v FROM a [RANGE 5 SECONDS] x, b [RANGE 5 SECONDS] y WHERE x.s = y.s AND y.k = x.k"
    assert len(network_of(one, other).joins) == 1


def test_queries_of_different_keys_have_different_state_tables():
    network = network_of(PAIR, PAIR.replace("x.k = y.k", "x.s = y.s"), PAIR.replace("x.k = y.k", "x.v = y.w"))
    assert [t.name for t in network.tables] == ["a(k)", "a(s)", "a(v)", "b(k)", "b(s)", "b(w)", "c"]
    assert [j.name for j in network.joins] == ["a(k) x b(k)", "a(s) x b(s)", "a(v) x b(w)"]


def test_joins_of_different_streams_share_the_state_table_of_a_common_stream():
    three = (
        "SELECT x.v FROM a [RANGE 1 SECONDS] x, b [RANGE 1 SECONDS] y, c [RANGE 1 SECONDS] z "
        "WHERE x.k = y.k AND y.k = z.k"
    )
    network = network_of(PAIR, three)
    assert [t.name for t in network.tables] == ["a(k)", "b(k)", "c(k)"]
    assert [(e.query, e.role, e.join, e.position) for e in table(network, "b(k)").entries] == [
        (1, 1, 0, 1),
        (2, 1, 1, 1),
    ]


def test_crossed_keys_are_not_mistaken_for_one_another():
    same = "SELECT x.v FROM a [RANGE 5 SECONDS] x, b [RANGE 5 SECONDS] y WHERE x.v = y.v AND x.w = y.w"
    crossed = "SELECT x.v FROM a [RANGE 5 SECONDS] x, b [RANGE 5 SECONDS] y WHERE x.v = y.w AND x.w = y.v"
    assert len(network_of(same, crossed).joins) == 2


def test_a_self_join_has_two_positions_over_one_state_table():
    network = network_of("SELECT x.v, y.w FROM a [RANGE 3 SECONDS] x, a [RANGE 5 SECONDS] y WHERE x.k = y.k")
    (join,) = network.joins
    assert join.tables == (0, 0)
    assert [(e.role, e.position, e.lives) for e in table(network, "a(k)").entries] == [
        (0, 0, (("a", 3_000_000),)),
        (1, 1, (("a", 5_000_000),)),
    ]
    assert [[(h.position, h.fresh) for h in route.hops] for route in build_routes(network).joins[0]] == [
        [(1, False)],
        [(0, True)],
    ]
    assert join.columns == (("v",), ("w",))


def test_a_row_meets_new_rows_at_earlier_positions_only():
    three = (
        "SELECT x.v FROM a [RANGE 1 SECONDS] x, b [RANGE 1 SECONDS] y, c [RANGE 1 SECONDS] z "
        "WHERE x.k = y.k AND y.k = z.k"
    )
    routes = build_routes(network_of(three)).joins[0]
    assert [[(h.position, h.fresh) for h in route.hops] for route in routes] == [
        [(1, False), (2, False)],
        [(0, True), (2, False)],
        [(0, True), (1, True)],
    ]


def test_ids_of_roles_are_permanent_while_bits_are_numbered_anew():
    before = network_of(PAIR, PAIR, first=7)
    after = build_network(before.queries[1:], STREAMS, version=1)
    ids = [[e.id for e in n.tables[0].entries] for n in (before, after)]
    assert ids == [[7 * MAX_ROLES, 8 * MAX_ROLES], [8 * MAX_ROLES]]
    name = before.joins[0].name
    assert (before.bits, after.bits) == ({7: (name, 0), 8: (name, 1)}, {8: (name, 0)})


def test_a_role_lives_as_long_as_it_can_meet_each_stream():
    text = (
        "SELECT x.v FROM a [RANGE 9 SECONDS] x, b [RANGE ALL] y, b [RANGE 2 SECONDS] z "
        "WHERE x.k = y.k AND y.k = z.k AND y.at <= x.at + INTERVAL 4 SECONDS"
    )
    network = network_of(text)
    assert table(network, "a(k)").entries[0].lives == (("b", 9_000_000),)
    assert [dict(e.lives) for e in table(network, "b(k)").entries] == [
        {"a": FOREVER, "b": FOREVER},
        {"a": 2_000_000, "b": 2_000_000},
    ]


# ----------------------------------------------------------------------------------------------- what is kept of a row


def test_a_query_over_one_stream_keeps_nothing():
    network = network_of("SELECT x.v FROM a x WHERE x.v > 3")
    assert table(network, "a").stateless
    assert [route.hops for route in build_routes(network).joins[0]] == [()]


def test_a_stream_that_nobody_reads_has_a_table_all_the_same():
    assert [(t.name, t.entries) for t in network_of(PAIR).tables_of("c")] == [("c", ())]


def test_only_needed_columns_are_stored():
    text = PAIR.replace("x.v", "x.w, result_time, x.at") + " AND x.d > 1.5 AND (x.v < y.v OR y.w IS NULL)"
    network = network_of(text)
    assert table(network, "a(k)").columns == ("v", "w")
    assert table(network, "b(k)").columns == ("v", "w")
    assert network.joins[0].columns == (("at", "w"), ())
    assert table(network, "a(k)").verify == ()


def test_a_key_that_is_no_single_integer_is_stored_to_be_verified():
    network = network_of(PAIR.replace("x.k = y.k", "x.s = y.s AND x.i = y.i"))
    own = table(network, "a(CAST(i AS BIGINT), s)")
    derived, declared = own.verify
    assert (text_of(network, derived), declared) == ("CAST(i AS BIGINT)", "s")
    assert own.columns == ("s", "v", derived)


def test_a_double_key_is_verified_in_its_normalized_form():
    own = network_of(PAIR.replace("x.k = y.k", "x.d = y.d")).tables[0]
    assert own.key_types == ("double",)
    assert own.verify[0].startswith("_d")
    assert own.columns == ("v", own.verify[0])


@pytest.mark.parametrize("column", ["k", "i"])
def test_a_single_integral_key_needs_no_verification(column):
    own = network_of(PAIR.replace("x.k = y.k", f"x.{column} = y.{column}")).tables[0]
    assert (own.key_types, own.verify, own.columns) == (("bigint",), (), ("v",))


def test_a_declared_sequence_is_stored_with_state():
    streams = {**STREAMS, "a": replace(STREAMS["a"], sequence="w")}
    network = network_of(PAIR, streams=streams)
    assert table(network, "a(k)").columns == ("v", "w")


def test_a_sequence_that_is_the_event_time_orders_no_rows_of_one_time():
    streams = {**STREAMS, "a": replace(STREAMS["a"], sequence="at")}
    own = table(network_of(PAIR, streams=streams), "a(k)")
    assert (own.sequence, own.columns) == (None, ("v",))


def test_a_result_column_is_named_by_position_and_declared_place():
    assert result_column(1, STREAMS["b"], "s") == "r1_c3"


# -------------------------------------------------------------------------------------------------------- predicates


def test_tests_against_literals_are_indexed_and_others_computed():
    network = network_of(PAIR + " AND x.v > 3 AND x.v < x.w AND x.s LIKE 'a%'")
    own = table(network, "a(k)")
    assert [i.column for i in own.indexes] == ["v"]
    assert sorted(text_of(network, name) for name, _ in own.truths) == ["s LIKE 'a%'", "v < w"]


def test_a_computed_predicate_is_computed_once_for_all_queries():
    network = network_of(PAIR + " AND x.v < x.w", PAIR + " AND x.s = 'a' AND x.v < x.w")
    (truth,) = table(network, "a(k)").truths
    assert truth[1] == (0, 1)
    assert len(network.derived) == 1


def test_predicates_that_may_raise_are_wrapped_whole_behind_those_that_cannot():
    network = network_of(PAIR + " AND 1 / (x.w - 5) > 0 AND x.w <> 5 AND x.v < x.w")
    own = table(network, "a(k)")
    risky = [d for d in network.derived if d.risky]
    assert [text_of(network, d.name) for d in risky] == ["(w <> 5) AND (v < w) AND (1 / (w - 5) > 0)"]
    assert [i.column for i in own.indexes] == ["w"]
    assert {name for name, _ in own.truths} == {d.name for d in network.derived}


def test_a_constant_condition_is_demanded_of_every_role():
    network = network_of(PAIR + " AND 1 = 2")
    assert all(table(network, name).entries[0].truths for name in ("a(k)", "b(k)"))


def test_a_computed_value_has_the_same_name_in_every_network():
    double = PAIR.replace("x.k = y.k", "x.d = y.d")
    alone, beside = network_of(double, first=9), network_of(PAIR + " AND x.v < x.w", PAIR, double, first=7)
    assert table(alone, alone.tables[0].name).verify == table(beside, alone.tables[0].name).verify


# --------------------------------------------------------------------------------------------------------- the whole


def test_256_queries_share_one_join():
    network = network_of(*[PAIR.replace("10", str(n + 1)) + f" AND x.v > {n % 7}" for n in range(256)])
    (join,) = network.joins
    assert [m.bit for m in join.members] == list(range(256))
    own = table(network, "a(k)")
    assert len(own.entries) == 256
    assert len(own.indexes[0].literals) == 7
    assert own.indexes[0].masks[0] == 0
    assert own.indexes[0].masks[-2] == (1 << 256) - 1


@settings(max_examples=examples(25))
@given(workload())
def test_building_is_deterministic_and_keeps_the_bounds_of_every_query(work):
    queries = [StandingQuery(n + 1, f"q{n}", q) for n, q in enumerate(work.parsed)]
    network = build_network(queries, work.streams)
    again = build_network(queries[::-1], work.streams)
    assert (network.tables, network.joins, network.derived) == (again.tables, again.joins, again.derived)
    members = {m.id: (join, m) for join in network.joins for m in join.members}
    assert sorted(members) == [q.id for q in queries]
    for standing in queries:
        join, member = members[standing.id]
        own = {(i, j): b for i, row in enumerate(member.bounds) for j, b in enumerate(row) if i != j}
        renamed = {(member.roles[i], member.roles[j]): b for (i, j), b in own.items()}
        assert renamed == bounds(standing.query)
        streams = [network.tables[t].stream for t in join.tables]
        assert streams == [standing.query.roles[r].stream for r in member.roles]
        assert len({network.tables[t].key_types for t in join.tables}) == 1


def test_keys_whose_types_do_not_compare_are_refused_with_the_fix():
    keys = tuple(Expression((Ref(i, c),), Ref(i, c), total=True) for i, c in enumerate("ks"))
    roles = tuple(Role(n, n, Window(5)) for n in "ab")
    query = Query("", roles, (keys,), (), (), (), ())
    with pytest.raises(RegistrationError, match=r"'q'.*a: bigint, b: string.*CAST one side"):
        build_network([StandingQuery(1, "q", query)], STREAMS)


def test_an_unbounded_query_is_refused():
    with pytest.raises(RegistrationError, match="never be purged"):
        network_of("SELECT x.v FROM a x, b [RANGE 20 SECONDS] y WHERE x.k = y.k")


# ---------------------------------------------------------------------------------------------------------- origins

FROM_ORIGIN = "SELECT count(*) AS n FROM {} [RANGE 4 SECONDS SLIDE 2 SECONDS ORIGIN TIMESTAMP '2026-01-01 00:00:{:02}']"
NEW_YEAR = 1_767_225_600_000_000


def test_a_stream_has_an_origin_if_all_its_queries_do_and_it_is_their_earliest():
    late, early = FROM_ORIGIN.format("a", 7), FROM_ORIGIN.format("(a UNION ALL b)", 3)
    assert network_of(late).origins == {"a": NEW_YEAR + 7_000_000}
    assert network_of(late, early).origins == {"a": NEW_YEAR + 3_000_000, "b": NEW_YEAR + 3_000_000}
    assert network_of(early, "SELECT count(*) AS n FROM a [TUMBLING 2 SECONDS]").origins == {"b": NEW_YEAR + 3_000_000}
    assert network_of(late, PAIR).origins == {}
    assert network_of(late, "SELECT v FROM a").origins == {}
