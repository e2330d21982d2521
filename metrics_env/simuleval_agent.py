"""A trained duplexmt model as an agent of SimulEval 1.1.4, run in the metrics environment:

    .venv-metrics/bin/simuleval --agent metrics_env/simuleval_agent.py --model-folder runs/latest/model --setting 0.7 \
        --source OUT/source.txt --target OUT/target.txt --latency-metrics AL LAAL AP DAL StartOffset

`python -m duplexmt.evaluation.simuleval export EVALUATION OUT` writes the files. With `--unit token` (the default)
tokens go in and out, and delays and latencies are those of `evaluate.py` in model tokens. With `--unit word` (and
`--target OUT/words.txt`) words are passed on once they are certain to be over, and BLEU is that of `evaluate.py`.

Decoding happens in the main environment, one process for all sentences. Never add `--computation-aware`: SimulEval then
overwrites the plain metrics; the project measures its own computing time.
"""

import json
import subprocess
from argparse import ArgumentParser, Namespace
from pathlib import Path

from simuleval.agents import TextToTextAgent
from simuleval.agents.actions import Action, ReadAction, WriteAction
from simuleval.utils import entrypoint

ROOT = Path(__file__).parents[1]


@entrypoint
class DuplexAgent(TextToTextAgent):
    """Asks the main environment what is written after each unit of source."""

    def __init__(self, args: Namespace) -> None:
        python = ROOT / args.main_environment / "bin" / "python"
        if not python.exists():
            raise SystemExit(f"error: no main environment at {python.parent.parent}: run make setup")
        command = [str(python), "-m", "duplexmt.evaluation.simuleval", "serve", str(Path(args.model_folder).resolve())]
        command += ["--run-as", args.run_as, "--max-target-tokens", str(args.max_target_tokens)]
        command += [] if args.setting is None else ["--setting", str(args.setting)]
        command += [] if args.adaptive is None else ["--adaptive", args.adaptive]
        self.decoder = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.answer()  # ready
        self.number = max(0, args.start_index) - 1
        self.unit = args.unit
        super().__init__(args)

    def reset(self) -> None:
        """A new sentence."""
        super().reset()
        self.passed_on = 0  # tokens, or words
        self.fresh = True

    def policy(self) -> Action:
        """Pass on what is written now, and ask for more source."""
        if self.fresh:
            self.number, self.fresh = self.number + 1, False
        units, finished = self.states.source, self.states.source_finished
        request = {"sentence": self.number, "units": units, "finished": finished}
        self.decoder.stdin.write((json.dumps(request) + "\n").encode())
        self.decoder.stdin.flush()
        answer = self.answer()
        if self.unit == "token":
            pieces = answer["tokens"]
        else:
            pieces = answer["text"].split()
            if not answer["finished"] and answer["text"][-1:].strip():  # the last word may go on
                pieces = pieces[:-1]
        new, self.passed_on = pieces[self.passed_on :], len(pieces)
        if new or answer["finished"]:
            return WriteAction(" ".join(new), finished=answer["finished"])
        return ReadAction()

    def answer(self) -> dict:
        """The decoder's next line."""
        line = self.decoder.stdout.readline()
        if not line:
            raise SystemExit("error: the main environment has stopped; what it said stands above")
        return json.loads(line)

    @staticmethod
    def add_args(parser: ArgumentParser) -> None:
        """Beside SimulEval's own."""
        parser.add_argument("--model-folder", required=True)
        parser.add_argument("--run-as", default="grid", help="grid, waitk, confidence, …: as build_system has them")
        parser.add_argument("--setting", type=float, help="its knob: θ of grid, k of waitk, ρ of confidence, …")
        parser.add_argument("--adaptive", help="K_MIN,K_MAX,ALPHA,DIVERGENCE of confidence and lsg: 1,4,0.6,paper")
        parser.add_argument("--unit", choices=["token", "word"], default="token")
        parser.add_argument("--max-target-tokens", type=int, default=64)
        parser.add_argument("--main-environment", default=".venv", help="folder of the environment with duplexmt")
