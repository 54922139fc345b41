"""`veilring serve`, `ask`, `submit`, `records` and `embed`: run one party on this machine."""

from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, cast

import typer

from veilring.cli.answers import AnswerFile, as_csv, or_stdin, require_new, write_answer
from veilring.cli.options import ConfigFile, KeptColumns, group_of
from veilring.errors import InputError

if TYPE_CHECKING:
    from veilring.deployment import Config
    from veilring.deployment.places import Near, PlacesClientConfig
    from veilring.deployment.prediction import RecordsAdministratorConfig
    from veilring.deployment.reloading import Reloads
    from veilring.deployment.surveys.client import Submitted

records_app = group_of("Change the records of a running prediction server.")


@records_app.command("add")
def add_command(
    config: ConfigFile,
    records: Annotated[
        Path, typer.Argument(help="CSV or .npz file with ids and labels.", metavar="RECORDS")
    ],
) -> None:
    """Add the records of a file. The server uses them from the next request on.

    The configuration names the administrator's own key and the server:

        role     = "administrator"
        identity = "registrar.key"
        roster   = "roster.toml"
        terms    = "terms.toml"
        server   = "clinic"
        key      = "id"          # the column that identifies the owner of a row

    A new record has a fresh budget; a forgotten record that returns has its remaining budget. You
    can repeat the command after any failure: existing records are skipped.
    """
    import asyncio

    from veilring.deployment.prediction import add_records

    added = asyncio.run(add_records(_load_administrator(config), records))
    typer.echo(f"{added:,} records were added")


@records_app.command("forget")
def forget_command(
    config: ConfigFile,
    ids: Annotated[
        list[str] | None, typer.Argument(help="Ids of the records.", metavar="ID")
    ] = None,
    *,
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="Read ids from this file, one on each line."),
    ] = None,
) -> None:
    """Forget records: when the command returns, they are gone from memory and disk.

    Other users of this machine can see a command's arguments; use --from to keep ids out of them.

    You can add forgotten records again, with their remaining budgets. Repeating the command is
    harmless.
    """
    import asyncio

    from veilring.deployment.prediction import forget_records, read_ids
    from veilring.errors import InputError

    named = [*(ids or ()), *(read_ids(source) if source else ())]
    if not named:
        raise InputError.because("no id is given; give at least one, or --from FILE", field="ID")
    gone = asyncio.run(forget_records(_load_administrator(config), named))
    typer.echo(f"{gone:,} records were forgotten")


def _load_administrator(config: Path) -> "RecordsAdministratorConfig":
    from veilring.deployment import load_config_of
    from veilring.deployment.prediction import RecordsAdministratorConfig

    return load_config_of(config, RecordsAdministratorConfig, "veilring records")


def embed_command(
    texts: Annotated[
        Path, typer.Argument(help="CSV file whose last column is the label.", metavar="TEXTS.csv")
    ],
    *,
    model: Annotated[
        Path, typer.Option(help="Folder of a sentence-transformers model.", metavar="DIR")
    ],
    column: Annotated[str, typer.Option(help="Column with the texts.")] = "text",
    key: Annotated[
        str | None, typer.Option(help="Column with the id of each text's owner.")
    ] = None,
    unlabelled: Annotated[
        bool, typer.Option("--unlabelled", help="Read no label column, for queries.")
    ] = False,
    out: Annotated[Path, typer.Option(metavar="FILE.npz", help="New .npz file to write.")],
) -> None:
    """Embed texts with a local model; nothing is downloaded.

    Requires the extra `text`. The file contains the arrays X, y and class_names, and with --key
    also ids. Such a file can contain public rows to tune on, the rows of a trial, records or
    queries.

    For example:

        veilring embed news.csv --model all-MiniLM-L6-v2 --out news.npz
        veilring deploy prediction news.npz --out predict
        veilring tune news.npz --protocol ind-knn --terms predict/terms.toml
        veilring embed letters.csv --model all-MiniLM-L6-v2 --key patient --out records.npz
        veilring embed questions.csv --model all-MiniLM-L6-v2 --unlabelled --out queries.npz
    """
    from veilring.data.npz import write_vectors
    from veilring.data.sources import embed_csv

    vectors = embed_csv(texts, column, model, key=key, labelled=not unlabelled)
    write_vectors(vectors, out)
    count, dimensions = vectors.features.shape
    typer.echo(f"{count:,} texts in {dimensions} dimensions: {out}")


_KEEP: Final = "keep"  # a key of the configuration, and an option
_ASK_AGAIN: Final = "ask again: the same request costs nothing"


def serve_command(
    config: ConfigFile,
    *,
    log_format: Annotated[
        Literal["text", "json"],
        typer.Option("--log-format", help="Format of the log's lines: text, or JSON objects."),
    ] = "text",
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"] | None,
        typer.Option(
            "--log-level",
            help="Lowest level of the log's lines. Default: that of the configuration.",
        ),
    ] = None,
) -> None:
    """Run one party of a deployment until Ctrl-C or SIGTERM.

    The configuration names the role. For a member of a ring that answers private kNN queries:

        role     = "member"
        identity = "ada.key"        # made by `veilring keys new`; private
        roster   = "roster.toml"    # made by `veilring keys roster`; shared by all
        terms    = "terms.toml"     # the protocol and the schema; shared by all
        rows     = "ada.csv"        # private; the label is the last column
        listen   = "0.0.0.0"        # default: loopback

    The party waits for the others, reconnects to lost ones, and logs to stderr. `veilring check`
    makes the checks of its start without starting it, and `veilring status` asks it while it runs.
    Under systemd, a unit of the type `notify` is started once the party is ready. To try it on one
    machine, `veilring deploy peers wine --out DIR` writes all files of a small ring.

    On SIGHUP the party reads its roster, key, policy and log level again, while it runs. A mistake
    in them is logged and changes nothing. If its terminal closes, it ends.

    A party that stores reports, or charges an epsilon, also has durable state: a ledger, a store or
    records. `veilring state new ada.toml` creates it, once; the party does not start without it.
    Never delete it.

    The system is named in the terms (`protocol.name`), and determines the other keys. `veilring
    deploy` writes all files of a small deployment of each system: `veilring deploy owner iris --out
    DIR`, for example, those of a data owner, which labels analysts' queries under a privacy budget.
    """
    import asyncio
    import logging

    from veilring.cli.operate import log_to_stderr
    from veilring.deployment import load_config
    from veilring.deployment import serve as serve_role
    from veilring.deployment.config import ServerConfig
    from veilring.deployment.reloading import Reloads
    from veilring.nodes.service import party_loop

    def read() -> "Config":
        loaded = load_config(config)
        return loaded.model_copy(update={"log_level": log_level}) if log_level else loaded

    log_to_stderr(log_format)
    loaded = read()
    role = serve_role(loaded)
    if isinstance(loaded, ServerConfig):
        logging.getLogger("veilring").setLevel(loaded.log_level.upper())
    with asyncio.Runner(loop_factory=party_loop()) as runner:
        runner.run(_serve_until_signal(role, Reloads(read)))


async def _serve_until_signal(role: Coroutine[Any, Any, None], reloads: "Reloads") -> None:
    """Serve until a signal to end, then shut down in order; read the files again on SIGHUP."""
    import asyncio
    import contextlib
    import signal

    reloads.current.set(reloads)
    serving = asyncio.create_task(role)
    loop, had_terminal = asyncio.get_running_loop(), _has_terminal()
    is_kept = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN  # by `nohup`

    def hang_up() -> None:
        # A terminal that closes sends SIGHUP, too.
        if had_terminal and not is_kept and not _has_terminal():
            serving.cancel()
        else:
            reloads.requested.set()

    with contextlib.ExitStack() as handlers:
        for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if sign == signal.SIGHUP or signal.getsignal(sign) != signal.SIG_IGN:
                loop.add_signal_handler(sign, hang_up if sign == signal.SIGHUP else serving.cancel)
                # uvloop leaves its handlers behind when it closes.
                handlers.callback(loop.remove_signal_handler, sign)
        with contextlib.suppress(asyncio.CancelledError):
            await serving


def _has_terminal() -> bool:
    """Return whether the process has a controlling terminal, which has not closed."""
    import os

    try:
        os.close(os.open(os.ctermid(), os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def ask_command(
    config: ConfigFile,
    queries: Annotated[
        Path | None,
        typer.Argument(
            help="CSV or .npz file with the rows to label; - reads CSV from stdin.",
            metavar="[QUERIES]",
        ),
    ] = None,
    *,
    near: Annotated[
        str | None,
        typer.Option(
            metavar="LAT,LON",
            help="For a places client: search near this place; - reads it from stdin.",
        ),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="For a places client: ε to spend on the search.")
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            metavar="FILE",
            help="For a client of a release: JSON file to write the released model to.",
        ),
    ] = None,
    keep: KeptColumns = None,
    out: AnswerFile = None,
) -> None:
    """Label the rows of a CSV file, or search for places, by querying running parties.

    The configuration names the client's own key and the party to ask:

        role     = "client"
        identity = "clerk.key"
        roster   = "roster.toml"
        terms    = "terms.toml"
        ask      = "ada"

    All parties see the queries; the client sees only the labels. The answer is a CSV
    file with the identifiers of the schema, the columns of `--keep`, and `label`. Parties of a
    release see no query: the client receives the noisy totals and labels the rows locally. With
    `--model FILE` instead of QUERIES it saves the model, for `veilring classify`.

    A client of a data owner or of a prediction server asks in the same way; `veilring deploy owner`
    and `veilring deploy prediction` write its configuration. If the command fails, repeat it: it
    returns the same labels, and nothing is charged twice.

    A places client searches near a private place with `veilring ask client.toml --near
    37.77,-122.42 --epsilon 4`. Its configuration has a `budget` for all queries together. Its state
    has the queries, the answers and the budget spent; never delete it.

    Other users of this machine can see a command's options; `--near -` reads the place from
    standard input instead. A repeated query returns the same answer; nothing is sent or spent. In
    the answer, `place` is the row of a place in the server's file, counted from 1. The command
    prints, on standard error, the probability that the answer comes from the right bucket.
    """
    import asyncio

    from veilring.deployment import Unfinished, ask, load_config, perform

    require_new(out)
    loaded = load_config(config)
    if keep and not hasattr(loaded, _KEEP):
        raise InputError("--keep", ", ".join(keep), f"nothing, for the role {loaded.role}")
    if keep:
        loaded = loaded.model_copy(update={_KEEP: tuple(keep)})
    if model is not None:
        if any(given is not None for given in (queries, near, epsilon, out)):
            raise InputError.because(
                "--model fetches only the model; leave QUERIES out, and label rows with"
                " `veilring classify`",
                field="--model",
            )
        require_new(model, "--model")
        asyncio.run(perform(loaded, "model")).save(model)
        return
    if queries is None:
        answer = perform(loaded, "near", _near(near, epsilon))
    elif near is not None or epsilon is not None:
        raise InputError.because(
            f"--near and --epsilon replace a file of queries; leave {queries} out", field="QUERIES"
        )
    else:
        answer = ask(loaded, or_stdin(queries))
    try:
        text = as_csv(asyncio.run(answer))
    except Unfinished as error:  # the payment is on disk by then
        write_answer(as_csv(error.answered), out, _ASK_AGAIN)
        raise
    if epsilon is not None:
        typer.echo(_chance(loaded, epsilon), err=True)
    write_answer(text, out, _ASK_AGAIN)


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

    chance = chance_of(
        cast("PlacesClientConfig", config), epsilon
    )  # no other role searches for places
    return (
        f"With probability {chance.probability:.2g} these places are those of the right bucket, one"
        f" of {chance.buckets:,} (epsilon {epsilon:g}). "
        "The answer does not show whether they are."
    )


def submit_command(
    config: ConfigFile,
    rows: Annotated[Path, typer.Argument(help="CSV file with one row per client.", metavar="ROWS")],
    *,
    single: Annotated[
        bool, typer.Option("--single", help="Send each report in its own message.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Send acknowledged reports again, too, unchanged.")
    ] = False,
) -> None:
    """Make one noisy report for each row of a CSV file, and send the reports to a collector.

    The configuration names the survey client's own key and the collector:

        role      = "client"
        protocol  = { name = "ldp-bayes" }
        identity  = "clinic.key"
        roster    = "roster.toml"
        collector = "census"
        budget    = 1.0              # for all reports of one client together
        key       = "patient"        # the column that identifies the client, or "row number"
        state     = "cohort.db"      # the reports, and each client's budget spent

    The rows never leave this machine. Each report is kept in the outbox before it is sent, and the
    same bytes are sent until the collector confirms that they are stored. You can interrupt the
    command at any time and run it again. No row is ever reported twice to the same task.

    If the collector lost reports, for example because a backup was restored, the command notices it
    and sends all of them again. This costs no budget, and a report that the collector has counts
    once. --again does the same without a check.
    """
    import asyncio

    from veilring.cli.console import show_progress
    from veilring.cli.operate import log_to_stderr
    from veilring.deployment import load_config_of
    from veilring.deployment.surveys.client import SurveyClientConfig, submit_rows

    log_to_stderr()
    loaded = load_config_of(config, SurveyClientConfig, "veilring submit")
    with show_progress(quiet=False) as progress:
        done = asyncio.run(
            submit_rows(loaded, rows, at_once=1 if single else None, again=again, progress=progress)
        )
    _say(done)
    if not done.is_complete:
        raise typer.Exit(1)


def _say(done: "Submitted") -> None:
    typer.echo(f"task {done.task.hex()}, epsilon {done.epsilon:g} per report")
    typer.echo(f"{done.kept:,} reports are stored and counted")
    if done.kept and not done.sent:
        typer.echo("they were acknowledged earlier; the collector still has the newest")
    for verdict, number in done.verdicts.items():
        if verdict is not None and not verdict.is_kept:
            typer.echo(f"{number:,} reports refused: {verdict.reason}")
    if done.refused:
        typer.echo(
            f"{done.refused:,} rows were not reported: the budgets of their clients are exhausted"
        )
