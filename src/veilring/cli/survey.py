"""`veilring survey`: the page on which people answer, and the number of people that are needed."""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from veilring.cli.options import AsJson, NewFolder, group_of

_EPSILONS: Final = (0.5, 1.0, 2.0)
_NEIGHBOURS: Final = (
    "With nobody trusted, epsilon holds for any two answers of a person. Otherwise it holds for\n"
    "whether the person answers; an exchanged answer costs up to twice as much, so compare\n"
    "nobody at epsilon with the others at epsilon / 2.\n"
)
"""How to compare the rows of a plan fairly."""

survey_app = group_of("Plan a survey, and write the page on which people answer.")


@survey_app.command("page")
def page_command(
    terms: Annotated[Path, typer.Argument(help="Terms of the aggregators.", metavar="TERMS")],
    *,
    client: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="File `dist/browser.js` of the npm package `@divviup/dap`."
        ),
    ],
    out: NewFolder,
) -> None:
    r"""Write the page on which people answer a survey, and a copy of its client.

    Any web server can serve the folder; for people on other machines, over HTTPS. The page sends
    the answers to the aggregators that the terms name.

    For example:

        npm install @divviup/dap@0.9.1
        veilring survey page survey/terms.toml \
            --client node_modules/@divviup/dap/dist/browser.js --out site
        python -m http.server --bind 127.0.0.1 --directory site
    """
    from veilring.deployment.surveys.page import PAGE, load_task, write_page

    write_page(load_task(terms), client, out)
    typer.echo(f"page: {out / PAGE}")


@survey_app.command("plan")
def plan_command(
    questions: Annotated[
        Path, typer.Argument(help="TOML file with the questions.", metavar="QUESTIONS")
    ],
    *,
    points: Annotated[
        float, typer.Option(help="Largest error of a share, in percentage points.")
    ] = 3.0,
    epsilon: Annotated[
        list[float] | None,
        typer.Option(
            help="Epsilon of a person's answers; may be repeated. Default: 0.5, 1, 2 and that of"
            " the file."
        ),
    ] = None,
    confidence: Annotated[
        float, typer.Option(help="Confidence of each share, between 0 and 1.")
    ] = 0.95,
    times: Annotated[
        int, typer.Option(help="Number of surveys that a person answers, such as one a month.")
    ] = 12,
    delta: Annotated[float, typer.Option(help="Delta for all these surveys together.")] = 1e-6,
    json: AsJson = False,
) -> None:
    """Show how many people a survey needs, for each kind of trust.

    The first number keeps the error of the noise within POINTS percentage points. The second one
    includes the error of sampling, for people drawn at random from a large population. Both hold
    for each share on its own, whatever the share is. If two aggregators add up the answers, all
    people have to be in one total: set `minimum` to their number.

    The second table shows the total epsilon of a person who answers TIMES surveys: the sum, and
    with DELTA the smallest that holds for all mechanisms.

    For example:

        veilring survey plan questions.toml
        veilring survey plan questions.toml --points 1 --epsilon 1 --epsilon 3 --json
    """
    from veilring.deployment.surveys.plan import people_needed, repeat_survey
    from veilring.deployment.surveys.questionnaire import Questionnaire

    asked = Questionnaire.load(questions)
    if warning := asked.warn(time.time()):
        typer.echo(warning, err=True)
    epsilons = sorted({*(epsilon or (*_EPSILONS, asked.epsilon))})
    needs = [
        need for each in epsilons for need in people_needed(asked, each, points / 100, confidence)
    ]
    repeats = [repeat_survey(each, times, delta) for each in epsilons]
    if json:
        from json import dumps

        document = {
            "points": points,
            "confidence": confidence,
            "delta": delta,
            "needs": [each._asdict() for each in needs],
            "repeated": [each._asdict() for each in repeats],
        }
        typer.echo(dumps(document, indent=2))
        return
    title = f"People for ±{points:g} points, with {confidence:.0%} confidence"
    _print_table(
        title,
        ("people trust", "epsilon", "for the noise", "as a sample"),
        [(n.trust, f"{n.epsilon:g}", f"{n.people:,}", f"{n.sampled:,}") for n in needs],
    )
    typer.echo(_NEIGHBOURS)
    _print_table(
        f"Epsilon of {times:,} surveys with the same person",
        ("epsilon", "sum", f"delta = {delta:g}"),
        [(f"{r.epsilon:g}", *(f"{each:.3f}" for each in r[2:])) for r in repeats],
    )


def _print_table(title: str, names: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from rich.table import Table

    from veilring.cli.console import make_console

    table = Table(title=title, title_justify="left")
    for number, name in enumerate(names):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    make_console().print(table)
