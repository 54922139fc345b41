"""Grids: their syntax, and the error for each mistake."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilring.errors import ScenarioError
from veilring.scenarios.sweep import CELLS_MAX, Value, parse_grid
from veilring.scenarios.sweep.cells import points


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1..6", (1, 2, 3, 4, 5, 6)),
        ("-2..1", (-2, -1, 0, 1)),
        ("4..4", (4,)),
        ("1..100:33", (1, 34, 67, 100)),
        ("1..100:40", (1, 41, 81)),
        ("1..3, 10, 30", (1, 2, 3, 10, 30)),
        ("3,10,30", (3, 10, 30)),
        ("0.1,0.25,1e-3", (0.1, 0.25, 0.001)),
        ("1_000", (1000,)),
        ("true,false", (True, False)),
        ("true,1", (True, 1)),
        ("uniform,distance", ("uniform", "distance")),
        ("1,2,auto", (1, 2, "auto")),
        ('"a,b",\'c#d\',"1..6"', ("a,b", "c#d", "1..6")),
        ('"\\"", e f ', ('"', "e f")),
        ("../rows.csv,data/a..b.csv", ("../rows.csv", "data/a..b.csv")),
    ],
)
def test_values_are_read(text: str, values: tuple[Value, ...]) -> None:
    """Ranges include both ends; a text that is not a TOML scalar is a string."""
    (found,) = parse_grid([f"table.key={text}"]).values()
    assert found == values
    assert [type(value) for value in found] == [type(value) for value in values]


@pytest.mark.parametrize(
    ("options", "key", "value", "allowed"),
    [
        (["protocol.rounds"], "--grid", "protocol.rounds", "protocol.rounds=1..6"),
        (["=1,2"], "--grid", "=1,2", "table.key=values"),
        (["protocol..k=1"], "--grid", "protocol..k=1", "table.key=values"),
        (["a.b=1", "a.b=2"], "a.b", "2", "give one for each key"),
        (["a.b="], "a.b", "empty", "values with commas"),
        (["a.b=1,,2"], "a.b", "1,,2", "values with commas"),
        (["a.b=1,"], "a.b", "1,", "values with commas"),
        (["a.b=[1, 2]"], "a.b", "[1, 2]", "values with commas"),
        (["a.b={c=1}"], "a.b", "{c=1}", "values with commas"),
        (["a.b=1 # one"], "a.b", "1 # one", "values with commas"),
        (['a.b="open'], "a.b", '"open', "values with commas"),
        (['a.b="\\q"'], "a.b", '"\\q"', "a TOML string"),
        (["a.b=6..1"], "a.b", "6..1", "last value is at least the first"),
        (["a.b=1..6:0"], "a.b", "1..6:0", "a step of at least 1"),
        (["a.b=1..6:-1"], "a.b", "1..6:-1", "first..last:step"),
        (["a.b=0..1:0.1"], "a.b", "0..1:0.1", "whole numbers as first..last"),
        (["a.b=1.."], "a.b", "1..", "whole numbers as first..last"),
        (["a.b=1...6"], "a.b", "1...6", "whole numbers as first..last"),
        (["a.b=1..9000000"], "a.b", "1..9000000", f"at most {CELLS_MAX}"),
        (["a.b=0..9223372036854775807"], "a.b", "0..9223372036854775807", f"at most {CELLS_MAX}"),
        ([f"a.b=1..{'9' * 5000}"], "a.b", "9" * 5000, "at most 64 bits"),
        (["a.b=9223372036854775808"], "a.b", "9223372036854775808", "at most 64 bits"),
        (["a.b=1..1000", "a.c=1..1001"], "--grid", "1001000 points", f"the limit is {CELLS_MAX}"),
        (["a.b=nan"], "a.b", "nan", "finite numbers"),
        (["a.b=1,inf"], "a.b", "inf", "finite numbers"),
        (["a.b=2020-01-01"], "a.b", "2020-01-01", "finite numbers, true, false and strings"),
        (["a.b=1,2,1"], "a.b", "1,2,1, where 1 is twice", "each value once"),
        (["a.b=1,1.0"], "a.b", "1,1.0, where 1.0 is twice", "each value once"),
        (["a.b=1..3,2"], "a.b", "1..3,2, where 2 is twice", "each value once"),
    ],
)
def test_a_mistake_names_key_value_and_allowed_values(
    options: list[str], key: str, value: str, allowed: str
) -> None:
    """An invalid grid is refused before anything else happens."""
    with pytest.raises(ScenarioError) as caught:
        parse_grid(options)
    assert caught.value.field == key
    assert caught.value.value == value or caught.value.message
    assert allowed in str(caught.value)


@pytest.mark.slow
@given(st.text(max_size=40))
def test_every_text_is_values_or_an_input_error(text: str) -> None:
    """Any text is either a list of values or a mistake in the scenario."""
    try:
        (values,) = parse_grid([f"a.b={text}"]).values()
    except ScenarioError:
        return
    assert values


@given(st.integers(-50, 50), st.integers(0, 60), st.integers(1, 9))
def test_a_range_is_pythons_with_its_end(first: int, width: int, step: int) -> None:
    """`first..last:step` is `range(first, last + 1, step)`."""
    grid = parse_grid([f"a.b={first}..{first + width}:{step}"])
    assert grid["a.b"] == tuple(range(first, first + width + 1, step))


def test_the_first_key_changes_least_often() -> None:
    """Points come in the order of a printed table."""
    grid = parse_grid(["a.x=1,2", "a.y=u,v"])
    assert [tuple(point.values()) for point in points(grid)] == [
        (1, "u"),
        (1, "v"),
        (2, "u"),
        (2, "v"),
    ]


def test_no_key_is_one_point() -> None:
    """A sweep over trials alone needs no grid."""
    assert list(points(parse_grid([]))) == [{}]
