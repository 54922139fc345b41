"""`veilring serve`, `veilring ask` and `veilring submit`: one party by itself, on this machine."""

from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from veilring.cli.answers import AnswerFile, as_csv, require_new, write_answer
from veilring.errors import InputError

if TYPE_CHECKING:
    from veilring.deployment import Config
    from veilring.deployment.places import Near, PlacesClientConfig
    from veilring.deployment.survey_client import Submitted


def serve_command(
    config: Annotated[Path, typer.Argument(help="The party's configuration.", metavar="CONFIG")],
) -> None:
    """Be one party of a deployment until Ctrl-C or SIGTERM.

    The configuration names the role. For a member of a ring that answers private kNN queries:

        role     = "member"
        identity = "ada.key"        # made by `veilring keys new`, this party's own
        roster   = "roster.toml"    # made by `veilring keys roster`, the same everywhere
        terms    = "terms.toml"     # what is run on which schema, the same everywhere
        rows     = "ada.csv"        # this party's own; the label is the last column
        listen   = "0.0.0.0"        # loopback if left out

    It waits for the other parties, dials those that were lost again, and logs to stderr. To try it
    on one machine, `veilring deploy ring wine --out DIR` writes all files of a small ring.

    Where the system spends an epsilon, such as `release`, its terms have a `budget`, and the member
    pays before it sends what depends on its rows:

        ledger   = "ada.db"         # what was spent, and the release; never delete it

    `veilring deploy peers wine --protocol release --out DIR` writes all files of a small one.

    For a party of noisy votes whose terms have the table `votes`, which pays likewise:

        role     = "votes-member"
        identity = "ada.key"
        roster   = "roster.toml"
        terms    = "terms.toml"     # what a batch costs, what all may, which rows vote
        rows     = "ada.csv"
        ledger   = "votes.db"       # what was spent, and labels; never delete it
        listen   = "0.0.0.0"

    `veilring deploy votes iris --radius 0.3 --out DIR` writes all files of a small one.

    For a collector, which stores what `veilring submit` hands in:

        role     = "collector"
        identity = "census.key"
        roster   = "roster.toml"
        terms    = "terms.toml"       # what is asked; it is published
        store    = "reports.sqlite"   # or postgresql://USER@HOST/DATABASE
        listen   = "0.0.0.0"

    `veilring deploy survey wine --out DIR` writes all files of a small collection.

    For a data owner, which labels analysts' queries under a privacy budget:

        role     = "data-owner"
        identity = "clinic.key"
        roster   = "roster.toml"
        terms    = "terms.toml"        # what is answered on which schema; analysts hold it, too
        rows     = "clinic.csv"        # its own; the label is the last column
        ledger   = "queries.ledger"    # what was spent, and each answer; never delete it
        budgets  = { total = 4.0, analyst = 2.0 }
        listen   = "0.0.0.0"

    `veilring deploy owner iris --radius 0.2 --out DIR` writes all files of a small one.

    For a server of places, which anybody may know, and near which others look in private:

        role     = "places"
        identity = "atlas.key"
        roster   = "roster.toml"
        terms    = "terms.toml"        # the map's plane in metres, and how many places there are
        rows     = "places.csv"        # with latitudes and longitudes in degrees
        listen   = "0.0.0.0"

    `veilring deploy places places.csv --out DIR` writes all files of a small one.

    For a prediction server, whose records `veilring records` adds and has forgotten meanwhile:

        role     = "prediction-server"
        identity = "clinic.key"
        roster   = "roster.toml"
        terms    = "terms.toml"        # what is answered, and how a row becomes a direction
        administrators = ["registrar"] # they may add and forget records
        state    = "state"             # the records, and what they spent; never delete it
        listen   = "0.0.0.0"

    `veilring deploy prediction digits --out DIR` writes all files of a small one.
    """
    import asyncio
    import logging

    from veilring.deployment import load_config
    from veilring.deployment import serve as serve_role
    from veilring.nodes.offload import party_loop

    logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s: %(message)s")
    logging.getLogger("veilring").setLevel(logging.INFO)
    role = serve_role(load_config(config))
    with asyncio.Runner(loop_factory=party_loop()) as runner:
        runner.run(_serve_until_told(role))


async def _serve_until_told(role: Coroutine[Any, Any, None]) -> None:
    """Serve until the first signal, and then leave in order."""
    import asyncio
    import contextlib
    import signal

    serving = asyncio.create_task(role)
    for sign in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(sign, serving.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await serving


def ask_command(
    config: Annotated[Path, typer.Argument(help="The client's configuration.", metavar="CONFIG")],
    queries: Annotated[
        Path | None,
        typer.Argument(help="A CSV or .npz file with the rows to label.", metavar="[QUERIES]"),
    ] = None,
    *,
    near: Annotated[
        str | None,
        typer.Option(
            metavar="LAT,LON",
            help="For a places client: look near this place; - reads it from stdin.",
        ),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="What looking near that place may spend.")
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            metavar="FILE",
            help="For a client of a release: write the released model here, in JSON.",
        ),
    ] = None,
    out: AnswerFile = None,
) -> None:
    """Have the rows of a CSV file labelled, or look for places, by parties that are being served.

    The configuration names the client's own key and the party that it asks:

        role     = "client"
        identity = "clerk.key"
        roster   = "roster.toml"
        terms    = "terms.toml"
        ask      = "ada"

    All parties of the ring see the queries; the client sees the labels and nothing else. The
    answer is a CSV file with the one column `label`. Parties of a release see no query: the client
    is sent the noisy totals, and labels by itself. With `--model FILE` in place of QUERIES it keeps
    the model, for `veilring classify`.

    For an analyst of a data owner:

        role     = "analyst"
        identity = "ann.key"
        roster   = "roster.toml"
        terms    = "terms.toml"
        ask      = "clinic"
        epsilon  = 0.5       # what the file of queries may cost, as one batch
        radius   = 0.2       # the radius within which rows vote; or k, how many neighbours

    The same command again gets the same labels and pays nothing, whatever went wrong before.

    For a prediction client; QUERIES is an .npz file if the terms have dimensions:

        role     = "prediction-client"
        identity = "ann.key"
        roster   = "roster.toml"
        terms    = "terms.toml"
        ask      = "clinic"
        block    = 100       # how many are sent at once; as many as fit if left out

    For a places client, which looks for places near one that the server does not learn
    (`veilring ask client.toml --near 37.77,-122.42 --epsilon 4`; other users of this machine can
    see a command's options, and `--near -` reads the place from standard input):

        role     = "places-client"
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

    from veilring.deployment import Unfinished, ask, ask_near, load_config

    require_new(out)
    loaded = load_config(config)
    if model is not None:
        if any(given is not None for given in (queries, near, epsilon, out)):
            raise InputError.because(
                "--model asks for the model alone; label rows with `veilring classify`",
                field="--model",
            )
        _save_model(loaded, model)
        return
    if queries is None:
        answer = ask_near(loaded, _near(near, epsilon))
    elif near is not None or epsilon is not None:
        raise InputError.because(
            f"--near and --epsilon ask by themselves; leave {queries} out", field="QUERIES"
        )
    else:
        answer = ask(loaded, queries)
    try:
        text = as_csv(asyncio.run(answer))
    except Unfinished as error:  # what was paid for is written
        write_answer(as_csv(error.answered), out)
        raise
    if epsilon is not None:
        typer.echo(_chance(loaded, epsilon), err=True)
    write_answer(text, out)


def _save_model(config: "Config", model: Path) -> None:
    import asyncio

    from veilring.deployment import fetch_model

    require_new(model, "--model")
    asyncio.run(fetch_model(config)).save(model)


def _near(near: str | None, epsilon: float | None) -> "Near":
    import sys

    from veilring.deployment.places import Near

    if near is None or epsilon is None:
        raise InputError.because(
            "there are no queries; give a CSV or .npz file, or both --near and --epsilon",
            field="QUERIES",
        )
    return Near.parse(sys.stdin.readline() if near == "-" else near, epsilon)


def _chance(config: "Config", epsilon: float) -> str:
    from veilring.deployment.places import chance_of

    chance = chance_of(cast("PlacesClientConfig", config), epsilon)  # no other role asks for places
    return (
        f"The places are those of the right bucket, one of {chance.buckets:,}, with probability "
        f"{chance.probability:.2g} (epsilon {epsilon:g}). "
        "The answer does not show whether they are."
    )


def submit_command(
    config: Annotated[
        Path, typer.Argument(help="The survey client's configuration.", metavar="CONFIG")
    ],
    rows: Annotated[Path, typer.Argument(help="A CSV file with one row a client.", metavar="ROWS")],
    *,
    single: Annotated[
        bool, typer.Option("--single", help="Send each report in a message of its own.")
    ] = False,
) -> None:
    """Make one noisy report for each row of a CSV file, and hand it to a collector.

    The configuration names the survey client's own key and the collector:

        role      = "survey-client"
        identity  = "clinic.key"
        roster    = "roster.toml"
        collector = "census"
        budget    = 1.0              # what one client's reports may ever spend together
        key       = "patient"        # the column that says whose row it is, or "row number"
        outbox    = "outbox.sqlite"  # what was made, and what each client has spent

    The rows never leave this machine. A report is kept in the outbox before it is sent, and the
    same bytes are sent until the collector says that they are stored: interrupt it at any time, and
    the same command goes on. No row is ever reported twice to the same task.
    """
    import asyncio
    import logging

    from veilring.cli.console import show_progress
    from veilring.deployment import load_config_of
    from veilring.deployment.survey_client import SurveyClientConfig, submit_rows

    logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s: %(message)s")
    loaded = load_config_of(config, SurveyClientConfig, "veilring submit")
    with show_progress(quiet=False) as progress:
        done = asyncio.run(
            submit_rows(loaded, rows, at_once=1 if single else None, progress=progress)
        )
    _say(done)
    if not done.is_complete:
        raise typer.Exit(1)


def _say(done: "Submitted") -> None:
    from veilring.protocols.ldp.messages import REASONS

    typer.echo(f"task {done.task.hex()}, epsilon {done.epsilon:g} a report")
    typer.echo(f"{done.kept:,} reports are stored and count")
    for verdict, number in done.verdicts.items():
        if verdict is not None and not verdict.is_kept:
            typer.echo(f"{number:,} were refused: {REASONS[verdict]}")
    if done.refused:
        typer.echo(f"{done.refused:,} rows were not reported: their clients have spent the budget")
