"""Marks of situations that a test campaign must reach to be meaningful.

A line such as ``sometimes("a party is lost between its votes and the total")`` costs next to
nothing and checks nothing. A campaign counts how often it is reached. It reports the marks that no
world has reached (after the `sometimes` assertions of Antithesis): those named in the source of a
role, and those that a world has passed while their condition did not hold. Marks of veilring's own
systems are of the second kind: a campaign in one mode need not reach the marks of another.
"""

import ast
import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from textwrap import dedent
from types import ModuleType
from typing import Final

_counted: Final = ContextVar[Counter[str] | None]("veilring_reached", default=None)


def sometimes(what: str, happens: bool = True) -> None:  # noqa: FBT001, FBT002  (reads as an assertion)
    """Record that a situation which a campaign must reach occurred."""
    counted = _counted.get()
    if counted is not None:
        counted[what] += bool(happens)


@contextmanager
def count_marks() -> Iterator[Counter[str]]:
    """Yield a count of the marks reached within the block, 0 for those that were only passed."""
    counted = Counter[str]()
    token = _counted.set(counted)
    try:
        yield counted
    finally:
        _counted.reset(token)


def marks_in(modules: Iterable[ModuleType]) -> frozenset[str]:
    """Return the marks in the source of modules."""
    return frozenset(mark for module in modules for mark in _marks_of(module))


def marks_below(function: Callable[..., object]) -> frozenset[str]:
    """Return the marks of a function and of the functions of its module that it uses."""
    found, left = set[str](), [function]
    known = {function}
    while left:
        using = left.pop()
        found |= _marks_of(using)
        code, home = getattr(using, "__code__", None), getattr(using, "__globals__", {})
        names = () if code is None else code.co_names
        used = (home[name] for name in names if name in home)
        more = {each for each in used if inspect.isfunction(each) and each.__globals__ is home}
        left += more - known
        known |= more
    return frozenset(found)


@cache
def _marks_of(origin: ModuleType | Callable[..., object]) -> frozenset[str]:
    try:
        source = inspect.getsource(origin)
    except (OSError, TypeError):  # defined at a prompt, or built in
        return frozenset()
    if sometimes.__name__ not in source:
        return frozenset()
    calls = (node for node in ast.walk(ast.parse(dedent(source))) if isinstance(node, ast.Call))
    return frozenset(what for call in calls if (what := _mark_of(call)))


def _mark_of(call: ast.Call) -> str:
    """Return the mark of a call of `sometimes`, or an empty string."""
    name = getattr(call.func, "id", getattr(call.func, "attr", ""))
    if name == sometimes.__name__ and call.args and isinstance(call.args[0], ast.Constant):
        return str(call.args[0].value)
    return ""
