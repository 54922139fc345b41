"""`veilring schema make` and `check`: the public schema of all parties' tables."""

from pathlib import Path
from typing import Annotated, Final

import typer

from veilring.cli.answers import require_new
from veilring.cli.options import LabelColumn, ReadingFile, group_of

schema_app = group_of("Draft the public schema of all parties' tables, and check a file by it.")
EXIT_DIFFERS: Final = 2  # as for any other wrong input

_Table = Annotated[
    Path, typer.Argument(help="CSV or Parquet file with this party's rows.", metavar="TABLE")
]


@schema_app.command("make")
def make_command(
    table: _Table,
    *,
    label: LabelColumn = None,
    reading: ReadingFile = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.toml", help="New file to write. Default: standard output."),
    ] = None,
) -> None:
    """Draft a schema from the rows of one party, which stay on this machine.

    For each column the draft says what it is: a number, a category, a date, an identifier, or
    nothing useful. Dates and identifiers are noticed. Ranges and categories come from the rows and
    are marked so: they are not public until you have replaced them by what is possible.

    For example:

        veilring schema make north.csv --label outcome --out schema.toml

        veilring schema check schema.toml north.csv

        veilring run north.csv --schema schema.toml
    """
    from veilring.data.cells import read_particulars
    from veilring.data.drafting import draft_schema
    from veilring.data.schema import read_file
    from veilring.privacy.files import write_whole

    require_new(out)
    drafted = draft_schema(read_file(table, read_particulars(reading, "--reading")), label)
    for line in drafted.found.values():
        typer.echo(line, err=out is None)
    if out is None:
        typer.echo(drafted.text, nl=False)
        return
    write_whole(out, drafted.text, new=True)
    typer.echo(f"Written: {out}. Read it, and replace what is from rows, before you share it.")


@schema_app.command("check")
def check_command(
    schema: Annotated[
        Path, typer.Argument(help="TOML file of the schema, or terms.", metavar="SCHEMA")
    ],
    table: _Table,
    *,
    reading: ReadingFile = None,
) -> None:
    """Check this party's rows by the schema; nothing is sent.

    Prints one line for each difference. `wrong` must be mended, in the file or in a reading: a TOML
    file with the particulars of this party's file, such as

        names   = { age = "Alter" }
        decimal = ","
        missing = ["-999", "k. A."]
        factors = { creatinine = 88.4 }   # from mg/dl here to µmol/l in the schema
        values  = { sex = { m = "male", w = "female" } }

    `note` says how a difference is read, and needs nothing. The exit code is 2 if anything is
    wrong. A party names its reading in its configuration: `reading = "reading.toml"`.

    For example:

        veilring schema check schema.toml coast.csv --reading coast.toml
    """
    from veilring.data.cells import read_particulars
    from veilring.data.checking import check_file
    from veilring.data.schema import read_file, read_schema

    agreed, cells = read_schema(schema), read_file(table, read_particulars(reading, "--reading"))
    found = check_file(agreed, cells)
    for finding in found:
        is_placed = not finding.column or finding.text.startswith(cells.source)
        where = "" if is_placed else f"column {finding.column!r}: "
        typer.echo(f"{'wrong' if finding.is_wrong else 'note '}  {where}{finding.text}")
    wrong = sum(finding.is_wrong for finding in found)
    rows = f"{cells.source}: {cells.rows:,} rows"
    if wrong:
        typer.echo(f"{rows}; {wrong} {'thing is' if wrong == 1 else 'things are'} wrong")
        raise typer.Exit(EXIT_DIFFERS)
    typer.echo(f"{rows} fit the schema")
