"""When Triton kernels are used."""

import logging
from types import SimpleNamespace

import pytest
import torch

from duplexmt.kernels import triton_use as kernels

ON_GPU, ON_CPU = SimpleNamespace(is_cuda=True), SimpleNamespace(is_cuda=False)


@pytest.fixture(autouse=True)
def everything_is_there(monkeypatch, tmp_path):
    (tmp_path / "Python.h").touch()
    monkeypatch.setattr(kernels, "find_spec", lambda name: name)
    monkeypatch.setattr(kernels.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(kernels.sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv("DUPLEXMT_TRITON", raising=False)
    kernels.triton_runs.cache_clear()
    yield
    kernels.triton_runs.cache_clear()


def test_on_a_gpu_unless_asked_not_to_or_compiled(monkeypatch):
    assert kernels.use_triton(ON_GPU)
    assert not kernels.use_triton(ON_CPU)
    with monkeypatch.context() as patch:
        patch.setattr(torch.compiler, "is_compiling", lambda: True)
        assert not kernels.use_triton(ON_GPU)
    monkeypatch.setenv("DUPLEXMT_TRITON", "0")
    assert not kernels.use_triton(ON_GPU)


def test_not_where_triton_is_not_installed(monkeypatch, caplog):
    monkeypatch.setattr(kernels, "find_spec", lambda name: None)
    assert not kernels.use_triton(ON_GPU)
    assert caplog.text == ""


@pytest.mark.parametrize("missing", ["compiler", "headers"])
def test_not_where_its_launchers_cannot_be_built_which_is_said_once(monkeypatch, tmp_path, caplog, missing):
    caplog.set_level(logging.WARNING)
    if missing == "compiler":
        monkeypatch.setattr(kernels.shutil, "which", lambda name: None)
        says = "Triton needs a C compiler (gcc, clang, or the one CC names)"
    else:
        (tmp_path / "Python.h").unlink()
        says = f"Triton needs Python's headers ({tmp_path / 'Python.h'}"
    assert not kernels.use_triton(ON_GPU)
    assert not kernels.use_triton(ON_GPU)
    assert len(caplog.messages) == 1
    assert says in caplog.text


def test_a_compiler_named_by_cc_will_do(monkeypatch):
    monkeypatch.setattr(kernels.shutil, "which", lambda name: None)
    monkeypatch.setenv("CC", "/opt/cc")
    assert kernels.use_triton(ON_GPU)
