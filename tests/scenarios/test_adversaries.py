"""Malicious parties of a scenario."""

from dataclasses import dataclass

import numpy as np
import pytest
from typing_extensions import override

from veilring.errors import RunFailed, Tampered
from veilring.nodes.adversary import Adversary
from veilring.protocols.ring.roles import SCALE_BITS, SumTotal
from veilring.protocols.ring.system import PrivateKNN
from veilring.scenarios import load_scenario, run_scenario
from veilring.transport.messages import Message


@dataclass
class Pretender(Adversary):
    """An adversary that is honest to others, but tells itself that all rows have class one."""

    @override
    async def received(self, sender: str, message: Message) -> Message:
        if isinstance(message, SumTotal):
            values = message.values.copy()
            values[:, 0] += np.uint64(100 << SCALE_BITS)
            return SumTotal(values=values)
        return message


class TestAdversaries:
    """Malicious parties of a scenario."""

    def test_an_adversary_that_takes_over_decides_every_label(self) -> None:
        """The report has the scenario with its adversaries and their effect on the labels."""
        overrides = ["parties.count=5", 'adversaries.party-1={kind="take-over", by=5, entry=2}']
        scenario = load_scenario("wine", [*overrides, "run.leakage_trials=0"])
        report = run_scenario(scenario, runtime="memory", seed=1)
        assert len(set(report.labels)) == 1
        assert report.agreement < 0.5
        settings = report.as_json()["settings"]["adversaries"]
        assert settings == {"party-1": {"kind": "take-over", "by": 5, "entry": 2}}

    @pytest.mark.parametrize("runtime", ["processes", "simulated"])
    def test_a_detected_adversary_ends_the_run_with_its_suspects(self, runtime: str) -> None:
        """There is no report, and the error names the culprit among its suspects."""
        overrides = ["parties.count=5", 'adversaries.party-1={kind="replayer"}']
        with pytest.raises(RunFailed) as caught:
            run_scenario(load_scenario("wine", overrides), runtime=runtime, seed=1)
        assert isinstance(caught.value.root, Tampered)
        assert "party-1" in caught.value.root.suspects

    def test_labels_are_those_of_an_honest_party(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Labels are an honest party's even if a malicious first party asked the queries."""
        kinds = {"pretender": Pretender}
        monkeypatch.setattr(PrivateKNN, "adversaries", lambda _system: kinds)
        overrides = ["parties.count=5", "run.leakage_trials=0"]
        honest = run_scenario(load_scenario("wine", overrides), runtime="memory", seed=1)
        assert len(set(honest.labels)) > 1
        lying = 'adversaries.party-0={kind="pretender"}'
        scenario = load_scenario("wine", [*overrides, lying])
        report = run_scenario(scenario, runtime="memory", seed=1)
        assert (report.labels, report.transcript) == (honest.labels, honest.transcript)
        liar = 'adversaries.party-1={kind="pretender"}'
        other = run_scenario(load_scenario("wine", [*overrides, liar]), runtime="memory", seed=1)
        assert other.labels == honest.labels
