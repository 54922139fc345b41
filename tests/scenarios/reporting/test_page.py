"""The page of a report: its content and its independence of other resources."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.scenarios.reporting.pages import Page

from veilring.nodes.journal import Mark
from veilring.protocols.ring.attacks.findings import RingFindings
from veilring.scenarios.reporting import RunFolder, read_folder
from veilring.scenarios.reporting.charts import ARROWS_MAX
from veilring.scenarios.reporting.page import render

COST_CHARTS = ["party-chart", "kind-chart", "round-chart"]
CHARTS = ["accuracy-chart", *COST_CHARTS, "leakage-chart", "spacetime"]
REPEATS = 6  # of a run of some 400 messages: more than are drawn
TRICK = "<script>alert('&')</script>"


@pytest.fixture
def run(finished: Path) -> RunFolder:
    """Return a successful run."""
    return read_folder(finished)


class TestSelfContained:
    """One file, and nothing else."""

    def test_nothing_is_loaded(self, finished: Path, crashed: Path) -> None:
        """No element, style or attribute of a page loads anything or contains an address."""
        for folder in (finished, crashed):
            html = render(read_folder(folder))
            page = Page(html)
            loading = {"img", "iframe", "object", "embed", "image", "use", "base", "form"}
            assert not loading & set(page.tags)
            assert page.policy.startswith("default-src 'none'; script-src 'sha256-")
            references = {v for name, v in page.attributes if name in {"src", "href", "xlink:href"}}
            assert references == {"data:,"}  # no icon is asked for
            addresses = {value for _, value in page.attributes if "//" in value}
            assert addresses == {"http://www.w3.org/2000/svg"}  # a name and no place
            assert not re.search(r"url\((?!#)|@import|@font-face", html)

    def test_equal_folders_give_equal_pages(self, run: RunFolder) -> None:
        """Nothing depends on the time or place of creation."""
        assert render(run) == render(run)

    def test_foreign_text_stays_text(self, run: RunFolder) -> None:
        """Names, settings and marks add only text to the page."""
        scenario = run.scenario.model_copy(update={"name": TRICK, "description": TRICK})
        tricked = replace(
            run,
            scenario=scenario,
            versions={TRICK: TRICK},
            marks=(Mark(0.0, "party-1", TRICK),),
            messages=tuple(message._replace(kind=TRICK) for message in run.messages),
        )
        page = Page(render(tricked))
        assert page.tags.count("script") == 2  # the data, and what steps through them
        assert page.text.count(TRICK) > 5


class TestContents:
    """The visible content of a page."""

    def test_all_charts_exist_and_are_described(self, run: RunFolder) -> None:
        """Each picture has a title and a description; ids are unique; headings skip no level."""
        page = Page(render(run))
        assert page.described == CHARTS
        assert len(set(page.ids)) == len(page.ids)
        assert page.headings[0] == 1
        steps = zip(page.headings, page.headings[1:], strict=False)
        assert all(following <= level + 1 for level, following in steps)

    def test_numbers_are_those_of_the_report(self, run: RunFolder) -> None:
        """Accuracy, measured and forecast cost, and leakage equal those in `report.json`."""
        page, report = Page(render(run)), run.report
        assert report is not None
        assert report.leakage is not None
        shares = [row[1] for row in page.tables["accuracy-table"]]
        assert shares == [
            f"{share:.1%}"
            for share in (
                report.accuracy,
                report.reference_accuracy,
                report.majority_accuracy,
                report.agreement,
            )
        ]
        cost = {row[0]: row[1:] for row in page.tables["cost-table"][1:]}
        assert cost == {
            name.replace("setup_", "set-up "): [
                f"{getattr(of, name):,}" for of in (report.cost, report.forecast)
            ]
            for name in ("rounds", "messages", "bytes", "setup_messages", "setup_bytes")
        }
        leaked = {row[0]: row[1:3] for row in page.tables["leakage-table"][1:]}
        exposure = report.leakage.estimates["exposure"]
        low, high = (exposure.value + side * 1.96 * exposure.standard_error for side in (-1, 1))
        assert leaked["exposure"] == [f"{exposure.value:.2%}", f"{low:.2%} to {high:.2%}"]
        assert report.transcript in page.text
        assert str(report.seed) in page.text

    @pytest.mark.parametrize("chart", COST_CHARTS)
    def test_the_numbers_beside_a_chart_add_up(self, chart: str, run: RunFolder) -> None:
        """By party, kind and round they add up to the report's cost; rounds exclude set-up."""
        assert run.report is not None
        page, cost = Page(render(run)), run.report.cost
        rows = page.tables[chart.replace("chart", "table")][1:]
        sums = [sum(int(row[column].replace(",", "")) for row in rows) for column in range(1, 5)]
        setup = [0, 0] if chart == "round-chart" else [cost.setup_messages, cost.setup_bytes]
        assert sums == [cost.messages, cost.bytes, *setup]

    def test_settings_and_versions_are_listed(self, run: RunFolder) -> None:
        """The page contains all settings and versions needed to repeat the run."""
        page = Page(render(run))
        assert [row[0] for row in page.tables["versions"]] == list(run.versions)
        assert "count = 12" in page.text
        assert "seed = 3" in page.text

    def test_a_failed_run_shows_its_error_first(self, crashed: Path) -> None:
        """The error comes first; there is a diagram, and no accuracy or leakage."""
        run = read_folder(crashed)
        page = Page(render(run))
        assert page.described == [*COST_CHARTS, "spacetime"]
        assert page.text.index("The run failed.") < page.text.index("All settings")
        assert "party-9 was lost" in page.text
        for words in (
            "party lost",
            "party stopped",
            "never received",
            "controlled by an adversary",
        ):
            assert words in page.text
        happened = page.tables["marks-table"][1:]
        assert len(happened) == len(run.marks)
        assert ["1.100 s", "party-9", "lost: it crashed"] in happened

    def test_a_run_without_incidents_has_no_such_sections(self, run: RunFolder) -> None:
        """Without a coalition or faults there are no sections on them."""
        page = Page(render(run))
        assert not {"coalition", "troubles"} & set(page.ids)

    def test_a_coalitions_findings_are_shown(self, recovered: Path) -> None:
        """The page shows a coalition's findings for each victim, and marks its members."""
        run = read_folder(recovered)
        page, report = Page(render(run)), run.report
        assert report is not None
        found = report.coalition
        assert isinstance(found, RingFindings)
        told = {row[0]: row[1:] for row in page.tables["coalition-table"]}
        assert told["coalition"][0] == "4 parties"
        assert all(member in told["coalition"][1] for member in found.members)
        assert told["votes exposed"][0] == f"{found.exposed} of {found.honest}"
        assert told["recurred"][0] == f"{found.named.recurred}"
        assert set(told) == {
            "coalition",
            "votes exposed",
            "vote sums",
            "correct claims",
            "correct likely claims",
            "distances located",
            "owners named",
            "with failed attempts",
            "recurred",
        }
        victims = page.tables["victims-table"][1:]
        assert [row[0] for row in victims] == [victim.party for victim in found.victims]
        assert [row[3] for row in victims] == [f"{victim.votes}" for victim in found.victims]
        assert "controlled by an adversary" in page.text

    def test_a_crash_and_the_retry_are_shown(self, recovered: Path) -> None:
        """The page shows the fault, the parties left out, the wasted work, and their times."""
        run = read_folder(recovered)
        page, report = Page(render(run)), run.report
        assert report is not None
        assert report.recovery is not None
        wasted = f"{report.recovery.messages:,} messages"
        assert [row[:2] for row in page.tables["troubles-table"]] == [
            ["faults", "1 of 1 took effect"],
            ["left out", "party-9"],
            ["wasted", wasted],
        ]
        assert page.tables["faults-table"][1:] == [["crash of party-9 at 1.500 s", "yes"]]
        of_party_9 = [row[2] for row in page.tables["marks-table"] if row[1] == "party-9"]
        assert of_party_9 == ["fault: crash", "lost: it crashed", "left out: the others ask again"]

    def test_a_failed_run_has_no_findings(self, crashed: Path) -> None:
        """The page of a failed run marks the colluding parties and shows no findings."""
        assert "coalition-table" not in Page(render(read_folder(crashed))).tables

    def test_many_messages_are_sampled_with_a_note(self, run: RunFolder) -> None:
        """The numbers of drawn and of all messages are given; sums include all."""
        several = tuple(
            message._replace(session=f"{number:02}")
            for number in range(REPEATS)
            for message in run.messages
        )
        page = Page(render(replace(run, messages=several)))
        drawn = re.search(r"The diagram shows ([\d,]+) of ([\d,]+) messages", page.text)
        assert drawn is not None
        assert drawn[2] == f"{REPEATS * len(run.messages):,}"
        assert int(drawn[1].replace(",", "")) <= ARROWS_MAX
        arrows = [
            value for name, value in page.attributes if (name, value[:5]) == ("class", "arrow")
        ]
        assert len(arrows) < ARROWS_MAX + 20  # the legend has some
        assert len(page.tables["spacetime-table"][1:]) == int(drawn[1].replace(",", ""))
        assert "sampled" not in Page(render(run)).ids

    def test_a_run_without_messages_has_a_page(self, crashed: Path) -> None:
        """A run that failed before its first message has a page."""
        page = Page(render(replace(read_folder(crashed), messages=(), marks=())))
        assert page.described == []
        assert "No messages were recorded." in page.text
        assert "No fault and no adversary was recorded." in page.text
