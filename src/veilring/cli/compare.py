"""`veilring compare` and `tune`: all systems on the same data, and the parameters of one."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from veilring.cli.options import (
    AsJson,
    BatchQueries,
    CellSeparator,
    LabelColumn,
    MeasureNames,
    PartiesCount,
    RandomSeed,
    ReadingFile,
    ReadingFiles,
    SchemaFile,
    TermsFile,
    Workers,
    readings_of,
)
from veilring.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from veilring.data.table import Table
    from veilring.scenarios.comparison.comparison import SystemComparison
    from veilring.scenarios.comparison.tuning import Tuned

_SHOWN = 10  # the number of choices shown; the file contains all
_TABLE = "protocol"


def tune_command(
    data: Annotated[
        str,
        typer.Argument(
            help="PUBLIC rows: built-in data set, a .csv, a .npz, or openml:NAME.",
            metavar="PUBLIC_DATA",
        ),
    ],
    *,
    protocol: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="System to tune, such as noisy-votes (see `veilring systems`)."
        ),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="protocol.KEY=VALUE",
            help="Fix a parameter instead of searching for it; may be repeated.",
        ),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="ε of the system. Default: the system's.")
    ] = None,
    label: LabelColumn = None,
    separator: CellSeparator = ",",
    terms: TermsFile = None,
    schema: SchemaFile = None,
    reading: ReadingFile = None,
    parties: PartiesCount = 8,
    queries: BatchQueries = 20,
    seeds: Annotated[
        int,
        typer.Option(help="Number of repetitions, each with its own split, partition and noise."),
    ] = 10,
    seed: RandomSeed = 0,
    workers: Workers = None,
    as_json: AsJson = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="File to write all results to.")
    ] = None,
) -> None:
    """Find the best parameters of a system on rows that are PUBLIC.

    Tuning on private rows leaks information that no budget accounts for. Use public rows that are
    similar to the private ones, and about as many: with fewer rows, the noise has more effect, and
    other parameters are best.

    Each tunable parameter is set to the best of its values in turn, until the accuracy no longer
    improves, with the evaluation of `veilring compare`. The accuracy of the best choice is measured
    on splits that were not used to choose it. At the end, the command prints a table that you can
    paste into a scenario or into terms.

    For example:

        veilring tune public.csv --protocol noisy-votes --epsilon 1

        veilring tune public.csv --protocol ind-knn --terms predict/terms.toml

        veilring tune digits --protocol ind-knn --set protocol.kernel=rbf --epsilon 2 --json
    """
    from veilring.cli.console import show_notes, show_progress
    from veilring.config import set_key
    from veilring.privacy.files import write_whole
    from veilring.scenarios.comparison.question import make_question
    from veilring.scenarios.comparison.tuning import tune

    if out is not None and out.exists():
        raise InputError(
            "out", out, "the path of a file that does not exist; nothing is overwritten"
        )
    tables: dict[str, Any] = {}
    for each in overrides or ():
        set_key(tables, each)
    if set(tables) - {_TABLE}:
        raise InputError("--set", next(iter(set(tables) - {_TABLE})), "protocol.KEY=VALUE")
    question = make_question(
        {
            "data": data,
            "label": label,
            "separator": separator,
            "parties": parties,
            "splits": seeds,
            "queries": queries,
            "schema_file": None if schema is None else str(schema),
            "reading_file": None if reading is None else str(reading),
            "terms": None if terms is None else str(terms),
            "seed": seed,
        }
    )
    fixed = dict(tables.get(_TABLE, {}))
    if epsilon is not None:
        fixed["epsilon"] = epsilon
    show_notes(question.data, **question.columns)
    with show_progress(quiet=False) as progress:
        found = tune(protocol, question, fixed, workers=workers, progress=progress)
    document = json.dumps(found.as_json(), indent=2)
    if out is not None:
        write_whole(out, f"{document}\n")
    if as_json:
        typer.echo(document)
    else:
        _show_tuned(found)


def _show_tuned(found: "Tuned") -> None:
    from rich.table import Table

    from veilring.cli.console import make_console
    from veilring.scenarios.comparison.lines import parameters_text
    from veilring.scenarios.report import interval_text, percent

    title = (
        f"{found.rows:,} public rows, {found.queries:,} queries in each of {found.splits} splits:"
        f" the best of {len(found.tried)} choices"
    )
    table = Table("parameters", found.score)
    for each in found.tried[:_SHOWN]:
        table.add_row(parameters_text(each.parameters) or "unchanged", percent(each.mean))
    console = make_console()
    console.print(title, highlight=False, markup=False, soft_wrap=True)
    console.print(table)
    said = (
        f"{percent(found.accuracy.mean)} ({interval_text(found.accuracy)}) on splits not used for"
        f" the choice; {percent(found.before.mean)} ({interval_text(found.before)}) with the"
        " original parameters."
    )
    console.print(said, highlight=False, markup=False, soft_wrap=True)
    console.print(found.toml, end="", highlight=False, markup=False, soft_wrap=True)


_WRAPPED = {"guarantee": 16, "1 in 10 below": 7}  # columns of words, and their widths


def compare_command(
    data: Annotated[
        list[str],
        typer.Argument(
            help="Data: wine, breast-cancer, digits, iris, openml:NAME, or path to a .csv or .npz;"
            " or the file of each party, with --schema or --terms.",
            metavar="DATA...",
        ),
    ],
    *,
    label: LabelColumn = None,
    separator: CellSeparator = ",",
    parties: PartiesCount = 8,
    epsilon: Annotated[
        str,
        typer.Option(
            metavar="VALUES", help="Values of ε at which to run the systems that have one."
        ),
    ] = "0.5,1,2",
    network: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.toml",
            help="TOML file with the keys of a scenario's network table: latency, jitter, "
            "bandwidth_bytes_per_second, tcp, graph. Default: 20 ms one way.",
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds",
            "--splits",
            help="Number of repetitions, each with its own split, partition and noise.",
            show_default="20, and up to 60 while the decision is open",
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            help="Loss of accuracy to the best line that still counts as equal.",
            show_default="0.02, two points",
        ),
    ] = None,
    queries: BatchQueries = 20,
    k: Annotated[
        int, typer.Option("--k", help="Number of neighbours, for systems without an ε.")
    ] = 5,
    radius: Annotated[
        float | None,
        typer.Option(
            "--radius",
            "--r",
            help="Radius within which rows vote, for features in [0, 1]. Default: set by a public"
            " rule.",
        ),
    ] = None,
    tau: Annotated[
        float | None,
        typer.Option(help="Minimum cosine similarity of a neighbour. Default: the system's."),
    ] = None,
    bins: Annotated[
        int | None,
        typer.Option(help="Number of bins of each feature's range. Default: the system's."),
    ] = None,
    schema: SchemaFile = None,
    reading: ReadingFiles = None,
    terms: TermsFile = None,
    tolerated: Annotated[
        int | None,
        typer.Option(
            help="Number of colluding parties up to which an ε holds.",
            show_default="less than half",
        ),
    ] = None,
    partition: Annotated[
        str, typer.Option(help="How to divide the rows: iid, dirichlet or by-label.")
    ] = "iid",
    seed: Annotated[
        int | None,
        typer.Option(
            help="Random seed, to repeat a comparison exactly, except for wall-clock times."
        ),
    ] = None,
    hindsight: Annotated[
        bool,
        typer.Option(
            help="Also find the best parameters in hindsight, to separate the loss from the rules"
            " from the loss from noise."
        ),
    ] = True,
    workers: Workers = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html|DIR",
            help="Write an HTML page, or a folder with page, numbers and chart.",
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.svg", help="Write only the chart.")
    ] = None,
    measure: MeasureNames = None,
    as_json: AsJson = False,
) -> None:
    """Compare the accuracy, privacy and cost of all systems that fit your rows.

    Every system runs on the same splits of the same data, with parameters set by public rules. Each
    line, one per system and ε, shows the accuracy, the trusted parties, the guarantee or the
    leakage, and the cost of a batch. The cost comes from a closed form, which a real batch must
    match to the byte. The decision names the line to use: of those as good as the best one, the one
    with the least trust, then the least ε, then the least cost.

    For example:

        veilring compare wine

        veilring compare my.csv --parties 5 --epsilon 0.1,1,4 --network wan.toml --out report.html

        veilring compare my.csv --schema schema.toml --radius 0.3 --seeds 40

        veilring compare north.csv coast.csv south.csv --schema schema.toml

        veilring compare my.csv --measure balanced-accuracy

        veilring compare digits --queries 50 --seed 7 --json
    """
    from veilring.cli.console import show_columns, show_notes, show_progress
    from veilring.measures import require_names
    from veilring.randomness import draw_seed
    from veilring.scenarios.comparison import compare as run_comparison
    from veilring.scenarios.comparison.page import (
        MEASURES,
        require_fresh,
        write_comparison,
        write_picture,
    )
    from veilring.scenarios.comparison.question import make_question, read_network

    require_names(measure or (), MEASURES)
    first, *others = data
    readings = readings_of(reading, data)
    pooled = _load_each(data, schema or terms, readings, label) if others else None
    given = {"radius": radius, "tau": tau, "bins": bins}
    question = make_question(
        {
            "data": first if pooled is None else ", ".join(Path(file).stem for file in data),
            "label": label,
            "separator": separator,
            "parties": parties if pooled is None else len(data),
            "epsilon": _numbers(epsilon),
            "splits": seeds,
            "tolerance": tolerance,
            "queries": queries,
            "k": k,
            "tolerated": tolerated,
            "partition": partition,
            "hindsight": hindsight,
            "settings": {name: value for name, value in given.items() if value is not None},
            "schema_file": None if schema is None else str(schema),
            "reading_file": readings.get(first),
            "terms": None if terms is None else str(terms),
            "seed": draw_seed() if seed is None else seed,
        },
        None if network is None else read_network(network),
    )
    require_fresh(out, plot)
    if pooled is None:
        show_notes(question.data, **question.columns)
    with show_progress(quiet=False) as progress:
        comparison = run_comparison(
            question, table=pooled, workers=workers, progress=progress, watch=_show_interim
        )
    if out is not None:
        write_comparison(comparison, out)
    if plot is not None:
        write_picture(comparison, plot)
    if as_json:
        typer.echo(json.dumps(comparison.as_json(), indent=2))
    else:
        if pooled is None:
            show_columns(question.data, **question.columns)
        _show(comparison, measure or ())


def _load_each(
    files: "Sequence[str]", schema: Path | None, readings: dict[str, str], label: str | None
) -> "Table":
    """Return the rows of all parties' files, read by their schema, as one table."""
    from veilring.cli.console import load_noting
    from veilring.scenarios.parts import pool

    if schema is None:
        raise InputError.because(
            "several files are those of as many parties; give the public schema of all with"
            " --schema (see `veilring schema`)",
            field="--schema",
        )
    return pool(
        [
            load_noting(file, schema=schema, reading=readings.get(file), label=label)
            for file in files
        ]
    )


def _numbers(values: str) -> list[float]:
    try:
        return [float(value) for value in values.split(",")]
    except ValueError:
        raise InputError("epsilon", values, "numbers, such as 0.5,1,2") from None


def _show_interim(comparison: "SystemComparison") -> None:
    """Print the decision so far on standard error."""
    first, *_ = comparison.decision.says
    typer.echo(f"So far, after {comparison.splits} splits: {first}", err=True)


def _show(comparison: "SystemComparison", measures: "Sequence[str]") -> None:
    from rich.box import SIMPLE_HEAD
    from rich.measure import Measurement
    from rich.table import Table

    from veilring.cli.console import make_console
    from veilring.scenarios.comparison.page import (
        NUMBERS,
        cells,
        headings,
        limits,
        promises,
        setting,
    )

    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    decision = comparison.decision
    for heading in (*headings(comparison.facts.wording), *measures):
        number = heading in {*NUMBERS, *measures}
        side: Literal["right", "left"] = "right" if number else "left"
        table.add_column(
            heading, justify=side, no_wrap=heading not in _WRAPPED, max_width=_WRAPPED.get(heading)
        )
    for line in comparison.lines:
        style = "bold" if line.key == decision.key else None
        row = cells(line, decision, measures)
        table.add_row(*row, style="dim" if line.in_hindsight else style)
    console = make_console()
    # A narrower table would cut numbers off.
    unbounded = console.options.update(max_width=sys.maxsize)
    console.width = max(console.width, Measurement.get(console, unbounded, table).maximum)
    for said in (setting(comparison), comparison.unprotected):
        console.print(said, highlight=False, markup=False, soft_wrap=True)
    console.print(table)
    warnings = filter(None, (decision.cannot, comparison.delta_warning, comparison.seeded))
    picked = [] if decision.key is None else [next(iter(promises(comparison).values()))]
    for said in (*decision.says, *picked, *limits(comparison), *warnings):
        console.print(said, highlight=False, markup=False, soft_wrap=True)
    for left in comparison.left_out:
        console.print(
            f"Left out: {left.name}, because {left.why}.", highlight=False, soft_wrap=True
        )
    again = f"To repeat this comparison: --seed {comparison.question.seed}"
    console.print(again, style="dim", highlight=False, markup=False)
