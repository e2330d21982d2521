"""How long commands take beside each other on a machine whose speed drifts: they run in turns, and pay for their own.

    python benchmarks/take_turns.py "make -C OLD train" "make -C NEW train" [--every 20]

Each command runs for `--every` seconds while the others are stopped (SIGSTOP to its process group), then the next one
does. A slow quarter of an hour slows them alike, and the ratio stands. Output goes to files, one a command, beside
`--logs`. The last line is one JSON object with the seconds each has run, and the ratios to the first.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Job:
    """A command and the seconds it has run; processes it starts belong to its group."""

    command: str
    process: subprocess.Popen[bytes]
    seconds: float = 0.0

    def run(self, every: float) -> None:
        """Let it go on until it ends, but for `every` seconds at most."""
        began = time.monotonic()
        os.killpg(self.process.pid, signal.SIGCONT)
        try:
            self.process.wait(every)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGSTOP)
        self.seconds += time.monotonic() - began


def take_turns(commands: list[str], every: float, logs: Path) -> list[Job]:
    """Run all commands to their ends, in turns; if this is ended before, so are they.

    Args:
        commands: of the shell.
        every: seconds of a turn.
        logs: folder for what they print.
    """
    logs.mkdir(parents=True, exist_ok=True)
    jobs: list[Job] = []
    try:
        for number, command in enumerate(commands):
            with open(logs / f"{number}.log", "wb") as log:
                # It stops itself before it does anything, and is woken for its first turn.
                held = ["sh", "-c", 'kill -STOP $$; exec sh -c "$0"', command]
                jobs.append(Job(command, subprocess.Popen(held, stdout=log, stderr=log, start_new_session=True)))
            os.waitpid(jobs[-1].process.pid, os.WUNTRACED)  # until it has stopped
        while going := [job for job in jobs if job.process.returncode is None]:
            for job in going:
                job.run(every)
                print(f"{job.seconds:.0f} s: {job.command}", file=sys.stderr, flush=True)
    finally:
        for job in jobs:
            if job.process.poll() is None:
                os.killpg(job.process.pid, signal.SIGKILL)
                job.process.wait()
    return jobs


def main(arguments: list[str] | None = None) -> None:
    """Run, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commands", nargs="+", metavar="COMMAND")
    parser.add_argument("--every", type=float, default=20.0, help="seconds of a turn")
    parser.add_argument("--logs", type=Path, default=Path("runs/turns"), help="folder for what the commands print")
    asked = parser.parse_args(arguments)
    if not asked.every > 0:
        parser.error(f"--every {asked.every:g}: a turn has more than 0 seconds")
    jobs = take_turns(asked.commands, asked.every, asked.logs)
    found = [
        {"command": job.command, "seconds": round(job.seconds, 2), "status": job.process.returncode} for job in jobs
    ]
    ratios = [round(job.seconds / jobs[0].seconds, 3) for job in jobs]
    print(json.dumps({"benchmark": "take_turns", "every": asked.every, "commands": found, "ratios": ratios}))
    if any(job.process.returncode for job in jobs):
        print(f"error: a command failed; what it printed is in {asked.logs}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
