"""`veilring classify`: label rows locally with a released model."""

from pathlib import Path
from typing import Annotated

import typer

from veilring.cli.answers import AnswerFile, as_csv, or_stdin, require_new, write_answer


def classify_command(
    model: Annotated[
        Path, typer.Argument(help="JSON file with a released model.", metavar="MODEL")
    ],
    rows: Annotated[
        Path | None,
        typer.Argument(
            help="CSV file with the rows to label; - reads it from stdin.", metavar="[ROWS]"
        ),
    ] = None,
    *,
    probabilities: Annotated[
        bool,
        typer.Option("--probabilities", help="Add a column with the probability of each class."),
    ] = False,
    out: AnswerFile = None,
) -> None:
    """Label the rows of a CSV file with a released model, without contacting any party.

    The file needs the columns of the model; other columns, such as a label, are ignored. The answer
    is a CSV file with the column `label`, and with `--probabilities` a column `probability of NAME`
    for each class.

    Without ROWS the command prints the guarantee of the model for the rows it was made from, and
    how it was made.

    For example:

        veilring run wine --protocol release --out runs/release

        veilring classify runs/release/model.json rows.csv --out labels.csv
    """
    require_new(out)
    from veilring.protocols.release.model import load_model

    loaded = load_model(model)
    if rows is None:
        typer.echo(str(loaded))
        return
    scaled = loaded.to_unit(or_stdin(rows))
    columns = {"label": loaded.named(loaded.classifier.predict(scaled)).tolist()}
    if probabilities:
        found = loaded.classifier.predict_proba(scaled).T.tolist()
        names = (f"probability of {name}" for name in loaded.schema.classes)
        columns |= dict(zip(names, found, strict=True))
    write_answer(as_csv(columns), out, "free some space and classify again")
