"""Entry points as a user runs them, each in a process of its own; libraries are loaded once for all of them.

A command spends most of its seconds on imports. Here a server, one for each process of the suite, has them done and
forks for each command, which leaves out the figures of results unless they are asked for: each takes seconds.
`cold=True` starts Python itself, as a shell does: for the first of each program, and for what is said at the start.
"""

import atexit
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from multiprocessing import forkserver
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

ROOT = Path(__file__).parents[1]
LOADED = [
    "lightning.pytorch", "duplexmt.training.run", "duplexmt.training.module", "duplexmt.evaluation.results",
    "duplexmt.model_folder.live_model", "hydra._internal.hydra", "hydra.experimental.compose",
    "duplexmt.evaluation.job", "transformers.models.qwen2.modeling_qwen2", "matplotlib.backends.backend_pdf",
    "matplotlib.backends.backend_svg",
    "fontTools.subset", "sacrebleu", "duplexmt.serving.server", "duplexmt.serving.app",
]  # fmt: skip


def environment():
    """Without network, GPU and tracebacks, in one thread."""
    ours = {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "PYTHONUTF8": "1"}
    return {name: value for name, value in (os.environ | ours).items() if name != "HYDRA_FULL_ERROR"}


def run(program, *arguments, stdin=b"", cwd=ROOT, timeout=600, cold=False, figures=False):
    """Run an entry point, or a module, from the root of the project or elsewhere; stdout and stderr as text."""
    command = [str(ROOT / program) if program.endswith(".py") else program, *arguments]
    if cold:
        assert program.endswith(".py")
        given = {"input": stdin, "cwd": cwd, "env": environment(), "timeout": timeout}
        done = subprocess.run([sys.executable, *command], **given, capture_output=True)
        return subprocess.CompletedProcess(command, done.returncode, done.stdout.decode(), done.stderr.decode())
    with begun(program, *arguments, stdin=stdin, cwd=cwd, figures=figures) as process:
        process.join(timeout)
        if process.is_alive():
            raise subprocess.TimeoutExpired(command, timeout)
        return subprocess.CompletedProcess(command, process.exitcode, process.said(1), process.said(2))


@contextmanager
def begun(program, *arguments, stdin=b"", cwd=ROOT, figures=False):
    """The process of an entry point, or a module, at work, in a session of its own, which ends with the block.

    Its `said(1)` and `said(2)` are what it has said so far on stdout and stderr; without stdin its `input` is a pipe.
    """
    command = [str(ROOT / program) if program.endswith(".py") else program, *arguments]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    with patch.dict(os.environ, environment(), clear=True):
        forkserver.ensure_running()
    with TemporaryDirectory() as folder:
        streams = [Path(folder) / name for name in ("stdin", "stdout", "stderr")]
        for stream in streams[1:]:
            stream.touch()
        if stdin is None:
            os.mkfifo(streams[0])
        else:
            streams[0].write_bytes(stdin)
        process = context.Process(target=_main, args=(command, environment(), cwd, streams, figures))
        process.start()
        process.input = streams[0]
        process.said = lambda number: streams[number].read_text(encoding="utf-8")
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with those it has started
            process.join()


def succeeded(done):
    assert done.returncode == 0, done.stderr
    return done


def _main(command, around, cwd, streams, figures):
    """The forked process: what Python does with a script."""
    os.setsid()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(around)
    for number, stream in enumerate(streams):
        os.dup2(os.open(stream, os.O_RDONLY if number == 0 else os.O_WRONLY), number)
    sys.stdin = os.fdopen(0, encoding="utf-8")
    sys.argv = command
    sys.path.insert(0, str(ROOT))
    for figure in () if figures else ("pareto_figure", "latencies_figure"):
        setattr(sys.modules["duplexmt.evaluation.results"], figure, lambda *_: None)
    try:
        if command[0].endswith(".py"):
            runpy.run_path(command[0], run_name="__main__")
        else:
            runpy.run_module(command[0], run_name="__main__", alter_sys=True)
    finally:  # a forked process leaves out what ends a script
        threading._shutdown()  # pools of processes are let go, which would wait for work for five minutes
        atexit._run_exitfuncs()
