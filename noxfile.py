"""The common tasks, each in its own environment: `nox --list`, `nox -s types`.

`.ci/run` is what a change must pass; these are its parts, and tests with other versions of Python.
"""

import nox

nox.options.sessions = ["lint", "types", "tests-3.11"]
nox.options.reuse_venv = "yes"
# Of one session: no other step needs its dependencies.
MUTMUT = "mutmut==3.8.1"
# Each file of hashes with the extras that it covers, in the versions of constraints.txt.
HASHED = {
    "requirements.lock": ("docs", "lint", "test", "uvloop"),
    "requirements-server.lock": ("geo", "metrics", "postgres", "prio", "uvloop"),
}


def install(session: nox.Session) -> None:
    """Install the checkout for development, each package with its hash checked."""
    session.install("-q", "-r", "requirements.lock")
    session.install("-q", "--no-build-isolation", "--no-deps", "-e", ".")


def install_extras(session: nox.Session, extras: str) -> None:
    """Install the checkout with extras that requirements.lock lacks, in the locked versions."""
    session.install("-q", "-e", f".[{extras}]", "-c", "constraints.txt")


@nox.session(python="3.11")
def lock(session: nox.Session) -> None:
    """Write the files of versions again; `nox -s lock -- --upgrade` takes the newest versions."""
    session.install("-q", "uv", "-c", "constraints.txt")

    compiling = ("uv", "pip", "compile", "-q", "pyproject.toml")
    platforms = ("--universal", "--python-version", "3.11")
    header = ("--custom-compile-command", "nox -s lock")

    def write(name: str, extras: tuple[str, ...], *options: str) -> None:
        chosen = (f"--extra={extra}" for extra in extras)
        session.run(*compiling, *platforms, *header, *chosen, *options, "-o", name)

    write("constraints.txt", (*HASHED["requirements.lock"], "benchmark"), *session.posargs)
    for name, extras in HASHED.items():
        write(name, extras, "--generate-hashes", "--no-annotate", "-c", "constraints.txt")


@nox.session(python=["3.11", "3.12", "3.13", "3.14"])
def tests(session: nox.Session) -> None:
    """Run the quick tests; `nox -s tests-3.13 -- -m ""` runs all with Python 3.13."""
    install(session)
    session.run("python", "-m", "pytest", "-n", "auto", *session.posargs)


@nox.session(python="3.11")
def lint(session: nox.Session) -> None:
    """Check style, prose and the contracts of imports."""
    install(session)
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("python", ".ci/prose.py", "--examples")
    session.run("lint-imports")


@nox.session(python="3.11")
def types(session: nox.Session) -> None:
    """Check types."""
    install(session)
    session.run("mypy")


@nox.session(python="3.11")
def docs(session: nox.Session) -> None:
    """Build the pages, and run what they show."""
    install(session)
    session.run("python", "-m", "sphinx", "-W", "-n", "-b", "html", "docs", "docs/_build/html")
    session.run("python", "-m", "pytest", "-n", "auto", "-m", "docs")


@nox.session(python="3.11")
def coverage(session: nox.Session) -> None:
    """Show which lines of `veilring.privacy` its own tests leave out."""
    install(session)
    session.run("coverage", "run", "-m", "pytest", "-q", "tests/privacy")
    session.run("coverage", "report", "--show-missing")


@nox.session(python="3.11")
def mutation(session: nox.Session) -> None:
    """Change 300 random places of `veilring.privacy`, and record which share its tests notice.

    `nox -s mutation -- --sample 9999` changes all places, for an hour or more.
    """
    install(session)
    session.install("-q", MUTMUT)
    session.run("python", ".ci/mutation.py", *(session.posargs or ("--sample", "300")))


@nox.session(python="3.11")
def notebooks(session: nox.Session) -> None:
    """Run the notebooks, and compare their outputs with those on the pages."""
    install(session)
    session.run("python", "-m", "pytest", "-m", "docs", "tests/docs/test_notebooks.py")


@nox.session(python="3.11")
def audit(session: nox.Session) -> None:
    """Audit all systems quickly; `nox -s audit -- release` audits one."""
    install_extras(session, "lab")
    command = "import veilring; print(*veilring.system_names())"
    names = str(session.run("python", "-c", command, silent=True)).split()
    for name in session.posargs or names:
        session.run("veilring", "audit", name, "--quick")


@nox.session(python="3.11")
def benchmarks(session: nox.Session) -> None:
    """Measure beside references; `nox -s benchmarks -- --only worlds` measures one."""
    install_extras(session, "benchmark,test,uvloop")
    session.run("python", "-m", "benchmarks", *session.posargs)
