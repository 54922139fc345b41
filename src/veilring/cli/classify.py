"""`veilring classify`: label rows with a released model, without any party or server."""

from pathlib import Path
from typing import Annotated

import typer

from veilring.cli.answers import AnswerFile, as_csv, require_new, write_answer


def classify_command(
    model: Annotated[Path, typer.Argument(help="A released model, in JSON.", metavar="MODEL")],
    rows: Annotated[
        Path | None,
        typer.Argument(help="A CSV file with the rows to label.", metavar="[ROWS]"),
    ] = None,
    *,
    probabilities: Annotated[
        bool,
        typer.Option("--probabilities", help="Add the probability of each class."),
    ] = False,
    out: AnswerFile = None,
) -> None:
    """Label the rows of a CSV file with a released model, on this machine alone.

    The file needs the columns of the model; others, such as a label, do not count. The answer is a
    CSV file with the column `label`, and with `--probabilities` a column `probability of NAME` for
    each class.

    Without ROWS it prints what the model promises those whose rows are in it, and how it was made.

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
    scaled = loaded.to_unit(rows)
    columns = {"label": loaded.named(loaded.classifier.predict(scaled)).tolist()}
    if probabilities:
        found = loaded.classifier.predict_proba(scaled).T.tolist()
        names = (f"probability of {name}" for name in loaded.schema.classes)
        columns |= dict(zip(names, found, strict=True))
    write_answer(as_csv(columns), out)
