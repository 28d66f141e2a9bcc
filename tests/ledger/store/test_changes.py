"""Changes run in bulk leave the same rows as one by one."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ledger.store.changes import Change, RowChange, bulk_statement, columns_of, in_bulk, statement

INSERT = Change("insert", "t", ("run", "id"), ("a", "b"))
SET_A = Change("update", "t", ("run", "id"), ("a",))
SET_A_KEEP_B = Change("update", "t", ("run", "id"), ("a",), ("b",))
CLEAR = Change("delete", "t", ("run",))
OTHER = Change("insert", "u", ("id",), ("run",))

runs, numbers = st.sampled_from("rs"), st.integers(0, 3)
changes = st.lists(
    st.one_of(
        st.tuples(st.just(INSERT), st.tuples(numbers, st.none() | numbers, runs, numbers)),
        st.tuples(st.just(SET_A), st.tuples(numbers, runs, numbers)),
        st.tuples(st.just(SET_A_KEEP_B), st.tuples(numbers, numbers, runs, numbers)),
        st.tuples(st.just(CLEAR), st.tuples(runs)),
        st.tuples(st.just(OTHER), st.tuples(runs, numbers)),
    ),
    max_size=40,
)


def apply(rows: dict[Any, dict[str, Any]], change: Change, values: tuple[Any, ...]) -> None:
    """One change on a table kept as a dict; an insert of a row that is there replaces it."""
    given_ = dict(zip(columns_of(change), values, strict=True))
    key = (change.table, *values[-len(change.key) :])
    if change.kind == "insert":
        rows[key] = given_
    elif change.kind == "delete":
        for other in [k for k in rows if k[0] == change.table and k[1] == values[0]]:
            del rows[other]
    elif key in rows:
        row = rows[key]
        row.update({column: given_[column] for column in change.sets})
        row.update({c: given_[c] for c in change.sets_if_null if row[c] is None})


@given(changes)
def test_bulk_order_gives_the_rows_of_one_by_one(story: list[RowChange]) -> None:
    expected: dict[Any, dict[str, Any]] = {}
    for change, values in story:
        apply(expected, change, values)
    found: dict[Any, dict[str, Any]] = {}
    for change, group in in_bulk(story):
        for values in group:
            apply(found, change, values)
    assert found == expected


@given(changes)
def test_a_group_names_each_row_once_and_nothing_is_lost(story: list[RowChange]) -> None:
    groups = in_bulk(story)
    assert sorted(len(values) for _, values in story) == sorted(len(v) for _, group in groups for v in group)
    for change, group in groups:
        rows = [values[-len(change.key) :] for values in group]
        assert len(set(rows)) == len(rows)


def test_many_rows_of_one_shape_are_one_group() -> None:
    story: list[RowChange] = [(INSERT, (1, None, "r", number)) for number in range(50)]
    story += [(SET_A, (2, "r", number)) for number in range(50)]
    assert [len(group) for _, group in in_bulk(story)] == [50, 50]


def test_thousands_of_rows_are_one_group_too() -> None:
    story: list[RowChange] = [(INSERT, (1, None, "r", number)) for number in range(2000)]
    assert [len(group) for _, group in in_bulk(story)] == [2000]


def test_a_change_is_written_as_sql() -> None:
    assert bulk_statement(INSERT) == (
        "INSERT INTO t (a, b, run, id) SELECT a, b, run, id FROM json_populate_recordset(NULL::t, %s::json)"
    )
    assert statement(INSERT, "?") == "INSERT INTO t (a, b, run, id) VALUES (?, ?, ?, ?)"
    assert statement(SET_A_KEEP_B, "%s") == "UPDATE t SET a = %s, b = coalesce(b, %s) WHERE run = %s AND id = %s"
    assert statement(CLEAR, "?") == "DELETE FROM t WHERE run = ?"
    assert bulk_statement(SET_A_KEEP_B) == (
        "UPDATE t AS t SET a = v.a, b = coalesce(t.b, v.b) FROM json_populate_recordset(NULL::t, %s::json) AS v "
        "WHERE t.run = v.run AND t.id = v.id"
    )
