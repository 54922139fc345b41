"""`veilring ask`: the client of whatever is served."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veilring.errors import InputError

if TYPE_CHECKING:
    from veilring.deployment.places import Near, SeekerConfig
    from veilring.deployment.roles import Columns


def ask(
    config: Annotated[Path, typer.Argument(help="The client's configuration.", metavar="CONFIG")],
    queries: Annotated[
        Path | None,
        typer.Argument(help="A CSV or .npz file with the rows to label.", metavar="[QUERIES]"),
    ] = None,
    *,
    near: Annotated[
        str | None,
        typer.Option(
            metavar="LAT,LON", help="For a seeker: look near this place; - reads it from stdin."
        ),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="What looking near that place may spend.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the labels here and not to standard output."),
    ] = None,
) -> None:
    """Have the rows of a CSV file labelled, or look for places, by parties that are being served.

    The configuration names the client's own key and the party that it asks:

        role     = "client"

        identity = "clerk.key"

        roster   = "roster.toml"

        terms    = "terms.toml"

        ask      = "ada"

    All parties of the ring see the queries; the client sees the labels and nothing else. The
    answer is a CSV file with the one column `label`.

    For an analyst of a data owner:

        role     = "analyst"

        identity = "ann.key"

        roster   = "roster.toml"

        terms    = "terms.toml"

        ask      = "clinic"

        epsilon  = 0.5       # what the file of queries may cost, as one batch

        r        = 0.2       # the radius within which rows vote; or k, how many neighbours

    The same command again gets the same labels and pays nothing, whatever went wrong before.

    For a querier of a prediction server; QUERIES is an .npz file if the terms have dimensions:

        role     = "querier"

        identity = "ann.key"

        roster   = "roster.toml"

        terms    = "terms.toml"

        ask      = "clinic"

        block    = 100       # how many are sent at once; as many as fit if left out

    For a seeker, who looks for places near one that the server does not learn
    (`veilring ask seeker.toml --near 37.77,-122.42 --epsilon 4`; other users of this machine can
    see a command's options, and `--near -` reads the place from standard input):

        role     = "seeker"

        identity = "eve.key"

        roster   = "roster.toml"

        terms    = "terms.toml"

        ask      = "atlas"

        budget   = 20.0                  # of all questions together, for ever

        ledger   = "questions.ledger"    # what was asked, answered and spent; never delete it

    The same place again gets the same answer, and nothing is sent or spent. In the answer, `place`
    is the number of a place: its row in the server's file, from 1. Standard error has how often
    such a question is answered with the places of its own bucket, since an answer does not show it.
    """
    import asyncio

    from veilring.deployment import load_config
    from veilring.deployment.places import SeekerConfig
    from veilring.deployment.prediction import Unfinished
    from veilring.deployment.roles import ask, ask_near

    if out is not None and out.exists():
        raise InputError("--out", out, "a file that does not exist yet")
    loaded = load_config(config)
    if queries is None:
        answer = ask_near(loaded, _near(near, epsilon))
    elif near is not None or epsilon is not None:
        raise InputError("QUERIES", queries, "left out with --near and --epsilon")
    else:
        answer = ask(loaded, queries)
    try:
        text = _csv(asyncio.run(answer))
    except Unfinished as error:  # what was paid for is written
        _write(_csv({"label": error.labels}), out)
        raise
    if isinstance(loaded, SeekerConfig) and epsilon is not None:
        typer.echo(_chance(loaded, epsilon), err=True)
    _write(text, out)


def _write(text: str, out: Path | None) -> None:
    if out is None:
        typer.echo(text, nl=False)
    else:
        from veilring.privacy.files import open_private

        with open_private(out, "x") as file:  # labels say of private rows what the answers do
            file.write(text)


def _near(near: str | None, epsilon: float | None) -> "Near":
    import sys

    from veilring.deployment.places import Near

    if near is None or epsilon is None:
        raise InputError("QUERIES", "missing", "a CSV or .npz file, or both --near and --epsilon")
    return Near.parse(sys.stdin.readline() if near == "-" else near, epsilon)


def _chance(config: "SeekerConfig", epsilon: float) -> str:
    from veilring.deployment.places import chance_of

    chance = chance_of(config, epsilon)
    return (
        f"The places are those of the right bucket, one of {chance.buckets:,}, with probability "
        f"{chance.probability:.2g} (epsilon {epsilon:g}). "
        "The answer does not show whether they are."
    )


def _csv(columns: "Columns") -> str:
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()
