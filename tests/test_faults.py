"""A few faults of the campaign, by the commands with their defaults: `benchmarks/faults.py` has all."""

import os
import random
import signal
import time

import pytest

from benchmarks import faults
from tests.commands import begun


def call(command, kill_after=None, number=signal.SIGKILL):
    """As the campaign's, in a process whose libraries are there already: faults come in what a command does."""
    start = time.monotonic()
    with begun(*command) as process:
        process.join(kill_after or 600)
        if late := process.is_alive():
            os.kill(process.pid, number)
            process.join(60)
            faults.expect(
                not process.is_alive(), f"still there a minute after {signal.Signals(number).name}: {command}"
            )
        said = process.said(1) + process.said(2)
        return faults.Done(process.exitcode, said, time.monotonic() - start, late and kill_after is not None)


@pytest.fixture
def quick(monkeypatch):
    """Drawing probes takes longer than these trainings; the campaign itself draws them, and trains longer."""
    monkeypatch.setattr(faults, "call", call)
    small = [*faults.SMALL, "probes.count=0", "data.train_size=80", "model.architecture.hidden_size=32"]
    small += ["model.architecture.intermediate_size=64", "model.architecture.num_hidden_layers=2"]
    monkeypatch.setattr(faults, "SMALL", small)
    monkeypatch.setattr(faults, "GRID", [*small, *faults.SYSTEMS["grid"]])


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    """The folder whose undisturbed runs the cases share."""
    return tmp_path_factory.mktemp("campaign")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kill train grid linear devices=1 accumulate=1 tokens=None", "flip checkpoint grid"])
def test_after_a_fault_the_result_is_the_undisturbed_one_or_the_error_names_the_file(name, campaign, quick):
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
