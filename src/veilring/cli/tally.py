"""`veilring tally`: what reports in Parquet files say."""

from pathlib import Path
from typing import Annotated

import typer

from veilring.cli.estimates import (
    AsJson,
    Confidence,
    Consistent,
    SaveTo,
    say_saved,
    show_estimates,
)
from veilring.cli.options import DaskAddress, Workers


def tally(  # noqa: PLR0913  (each option is an argument)
    terms: Annotated[Path, typer.Argument(help="The terms of the collection.", metavar="TERMS")],
    reports: Annotated[
        list[Path], typer.Argument(help="Files of `veilring export`.", metavar="REPORTS...")
    ],
    *,
    confidence: Confidence = 0.95,
    save: SaveTo = None,
    consistency: Consistent = "paper",
    engine: Annotated[
        str | None,
        typer.Option(
            help="Where they are added up: local (processes), dask or ray; else in this process.",
            show_default=False,
        ),
    ] = None,
    workers: Workers = None,
    dask_address: DaskAddress = None,
    json: AsJson = False,
) -> None:
    """Estimate from reports in Parquet files, however many and wherever they are added up.

    The result is the same to the last count on any engine. A report that is to another task, or
    that no client could have made, ends it with an error. Memory is bounded whatever the size of
    the files. A cluster's workers find them under the same absolute paths.

    For example:

        veilring export census.toml --out reports

        veilring tally terms.toml reports/*.parquet --save model.json

        veilring tally terms.toml reports/*.parquet --engine dask --dask-address tcp://10.0.0.5:8786
    """
    from functools import partial

    from veilring.deployment.estimating import estimate_from, save_model, tally_files
    from veilring.deployment.survey import SurveyTerms
    from veilring.errors import InputError
    from veilring.scenarios.sweep import Engine
    from veilring.scenarios.sweep.engine import each_done

    if engine is None and (workers, dask_address) != (None, None):
        raise InputError("engine", "none", "local, dask or ray, to have workers")
    spread = None
    if engine is not None:
        spread = partial(each_done, engine=Engine(engine, workers, dask_address))
    loaded = SurveyTerms.load(terms)
    found = estimate_from(loaded, tally_files(loaded.task, reports, spread), confidence=confidence)
    if save is not None:
        save_model(found, save, consistency=consistency)
    show_estimates(found, json=json)
    say_saved(save, json=json)
