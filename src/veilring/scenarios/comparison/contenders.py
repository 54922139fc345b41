"""The contenders of a comparison: the systems that apply to a table, at each ε, and baselines.

Parameters follow from public numbers alone: trying several on private rows and keeping the best
leaks information that no budget accounts for. The rules are the same for all data.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from veilring.data.table import Table
from veilring.errors import InputError, MissingExtra
from veilring.protocols.promise import Facts
from veilring.protocols.registry import find_system, system_names
from veilring.protocols.system import System
from veilring.scenarios.comparison.baselines import Baseline, installed
from veilring.scenarios.comparison.lines import Left
from veilring.scenarios.comparison.question import Question, draw_split
from veilring.scenarios.comparison.tuning import SystemAt
from veilring.scenarios.network import make_topology

Contender = SystemAt | Baseline
"""A system at an ε, or a baseline."""


def find_contenders(
    table: Table, question: Question
) -> tuple[tuple[Contender, ...], tuple[Left, ...]]:
    """Return the contenders, and the systems that do not apply, with the reason.

    Args:
        table: All rows, scaled into [0, 1].
    """
    found, left_out = list[Contender](), dict[str, Left]()
    split = draw_split(table, question, 0)
    size = len(split.batches(question.queries)[0])
    for kind in map(find_system, system_names()):
        if not kind.hides_rows:
            left_out[kind.title] = Left(kind.title, "it protects a query, not rows")
            continue
        for contender in _forms_of(kind, question):
            try:
                setup = contender.set_up(split, size)
                make_topology(question.network, setup.parties)
                earlier = (each for each in found if isinstance(each, SystemAt))
                same = next((e for e in earlier if contender.repeats(e, split.facts)), None)
            except (InputError, MissingExtra) as error:
                why = str(error)
                if isinstance(error, InputError):
                    why = f"it does not fit this table: {error.sentence}"
                left_out[contender.title] = Left(contender.title, why)
            else:
                if same is None:
                    found.append(contender)
                    continue
                why = f"it repeats {same.title} wherever that has the same guarantee"
                left_out[contender.title] = Left(contender.title, why)
    for baseline in installed(table.features):
        try:
            baseline.label(split, question)
        except InputError as error:
            left_out[baseline.title] = Left(baseline.title, error.sentence)
            continue
        found += [replace(baseline, epsilon=epsilon) for epsilon in question.epsilon]
    return tuple(found), tuple(left_out.values())


def _forms_of(kind: type[System], question: Question) -> Iterator[SystemAt]:
    """Yield each form of a system with the parameters of the question: once, or at each ε."""
    settings = {name: value for name, value in question.settings.items() if name in kind.tunable()}
    at = [
        kind.forms(epsilon=epsilon, k=question.k, tolerated=question.colluding)
        for epsilon in (question.epsilon if kind.is_bounded() else (None,))
    ]
    for form in at[0]:
        yield from (SystemAt(forms[form].replaced(**settings), form) for forms in at)


def describe_rules(systems: Sequence[SystemAt], public: Facts) -> tuple[tuple[str, str], ...]:
    """Return each rule in words, with its values for this table at the smallest ε."""
    said = dict[str, str]()
    for each in systems:
        said.setdefault(each.title, each.system.rule(public))
    ranges = "features are scaled into [0, 1] by public ranges; values outside are clipped"
    return ("ranges", ranges), *((name, rule) for name, rule in said.items() if rule)
