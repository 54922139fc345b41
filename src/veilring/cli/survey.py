"""`veilring survey`: the page on which people answer, and the number of people that are needed."""

from pathlib import Path
from typing import Annotated

import typer

from veilring.cli.options import NewFolder

survey_app = typer.Typer(
    help="Plan a survey, and write the page on which people answer.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@survey_app.command("page")
def page_command(
    terms: Annotated[Path, typer.Argument(help="Terms of the aggregators.", metavar="TERMS")],
    *,
    client: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="The file dist/browser.js of the npm package @divviup/dap."
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
    from veilring.deployment.aggregators import VerifiedSumTerms
    from veilring.deployment.survey_page import PAGE, write_page

    write_page(VerifiedSumTerms.load(terms).task, client, out)
    typer.echo(f"page: {out / PAGE}")
