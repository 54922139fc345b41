"""The common tasks, each in its own environment: `nox --list`, `nox -s types`.

`.ci/run` is what a change must pass; these are its parts, and tests with other versions of Python.
"""

import json
from pathlib import Path

import nox

nox.options.sessions = ["lint", "types", "tests-3.11"]
nox.options.reuse_venv = "yes"
LOCKED = ("-c", "requirements.lock")
MUTMUT = "mutmut==3.8.1"  # of this session only: no other step needs its dependencies


def install(session: nox.Session, extras: str) -> None:
    """Install the checkout with extras, in the locked versions."""
    session.install("-q", "-e", f".[{extras}]", *LOCKED)


@nox.session(python=["3.11", "3.12", "3.13", "3.14"])
def tests(session: nox.Session) -> None:
    """Run the quick tests; `nox -s tests-3.13 -- -m ""` runs all with Python 3.13."""
    install(session, "test")
    session.run("python", "-m", "pytest", "-n", "auto", *session.posargs)


@nox.session(python="3.11")
def lint(session: nox.Session) -> None:
    """Check style, prose and the contracts of imports."""
    install(session, "docs,lint,test,uvloop")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("python", ".ci/prose.py", "--examples")
    session.run("lint-imports")


@nox.session(python="3.11")
def types(session: nox.Session) -> None:
    """Check types."""
    install(session, "docs,lint,test,uvloop")
    session.run("mypy")


@nox.session(python="3.11")
def docs(session: nox.Session) -> None:
    """Build the pages, and run what they show."""
    install(session, "docs,test")
    session.run("python", "-m", "sphinx", "-W", "-n", "-b", "html", "docs", "docs/_build/html")
    session.run("python", "-m", "pytest", "-n", "auto", "-m", "docs")


@nox.session(python="3.11")
def coverage(session: nox.Session) -> None:
    """Show which lines of `veilring.privacy` its own tests leave out."""
    install(session, "lint,test")
    session.run("coverage", "run", "-m", "pytest", "-q", "tests/privacy")
    session.run("coverage", "report", "--show-missing")


@nox.session(python="3.11")
def mutation(session: nox.Session) -> None:
    """Change `veilring.privacy` in 6,000 places, for an hour or more; list what passes.

    `nox -s mutation -- 'veilring.privacy.tails.*'` changes one module, which takes minutes.
    """
    install(session, "test")
    session.install("-q", MUTMUT)
    session.run("mutmut", "run", *session.posargs)
    results = str(session.run("mutmut", "results", silent=True)).splitlines()
    session.log("\n".join(line for line in results if not line.endswith("not checked")))
    session.run("mutmut", "export-cicd-stats")
    counts = json.loads(Path("mutants/mutmut-cicd-stats.json").read_text(encoding="utf-8"))
    noticed = counts["killed"] + counts["timeout"]
    changed = noticed + counts["survived"] + counts["no_tests"] + counts["suspicious"]
    session.log(f"mutation score: {noticed} of {changed} ({noticed / max(changed, 1):.0%})")


@nox.session(python="3.11")
def notebooks(session: nox.Session) -> None:
    """Run the notebooks, and compare their outputs with those on the pages."""
    install(session, "test")
    session.run("python", "-m", "pytest", "-m", "docs", "tests/docs/test_notebooks.py")


@nox.session(python="3.11")
def audit(session: nox.Session) -> None:
    """Audit all systems quickly; `nox -s audit -- release` audits one."""
    install(session, "lab")
    command = "import veilring; print(*veilring.system_names())"
    names = str(session.run("python", "-c", command, silent=True)).split()
    for name in session.posargs or names:
        session.run("veilring", "audit", name, "--quick")


@nox.session(python="3.11")
def benchmarks(session: nox.Session) -> None:
    """Measure beside references; `nox -s benchmarks -- --only worlds` measures one."""
    install(session, "benchmark,test,uvloop")
    session.run("python", "-m", "benchmarks", *session.posargs)
