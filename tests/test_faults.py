"""A few faults of the campaign, by the commands with their defaults: `benchmarks/faults.py` has all."""

import random

import pytest

from benchmarks import faults


@pytest.fixture(autouse=True)
def no_figures(monkeypatch):
    """Drawing probes takes longer than these trainings; the campaign itself draws them, and trains longer."""
    small = [*faults.SMALL, "probes.count=0", "data.train_size=80"]
    monkeypatch.setattr(faults, "SMALL", small)
    monkeypatch.setattr(faults, "GRID", [*small, *faults.SYSTEMS["grid"]])


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    """The folder whose undisturbed runs the cases share."""
    return tmp_path_factory.mktemp("campaign")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "kill train grid linear devices=1 accumulate=1 cells=None",
        "flip checkpoint grid",
    ],
)
def test_after_a_fault_the_result_is_the_undisturbed_one_or_the_error_names_the_file(name, campaign):
    (case,) = (case for case in faults.all_cases(quick=True) if case.name == name)
    fewer = {"kills": 1} if name.startswith("kill") else {}
    case.run(case, campaign / name.replace(" ", "-"), random.Random(name), **fewer)
    assert case.counts["faults"]


def test_the_whole_campaign_has_all_kinds_of_faults_each_case_once():
    names = [case.name for case in faults.all_cases(quick=False)]
    assert len(names) == len(set(names)) > 70
    assert {name.split()[0] for name in names} == {"kill", "truncate", "flip", "full", "read-only", "two", "clock"}


def test_a_process_that_outlives_its_command_is_found(monkeypatch):
    monkeypatch.setattr(faults, "processes_of", lambda mark: [1])
    monkeypatch.setattr(faults.time, "monotonic", iter([*range(0, 100, 10)] * 9).__next__)
    with pytest.raises(faults.FaultError, match="outlived"):
        faults.call(["-c", "print()"])
