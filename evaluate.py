"""Evaluate a trained model: `python evaluate.py model_folder=runs/latest/model policy.theta=[0.5,0.7,0.9]`."""

import json
import logging
import os
import sys
from dataclasses import asdict
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from duplexmt.config import EvaluateSettings, quote_arguments, recorded_data, register_schemas, settings, user_errors

register_schemas()
log = logging.getLogger("evaluate")


@hydra.main(version_base="1.3", config_path="conf", config_name="evaluate")
def main(cfg: DictConfig) -> float:
    """Decode the held-out pairs at each θ, score, and write hypotheses and table."""
    with user_errors():
        hydra_cfg = HydraConfig.get()
        arguments = list(hydra_cfg.overrides.task)
        return evaluate(settings(EvaluateSettings, cfg), arguments, Path(hydra_cfg.runtime.output_dir))


def evaluate(cfg: EvaluateSettings, arguments: list[str], folder: Path) -> float:
    """One evaluation in one folder; returns BLEU at the last θ for sweeps."""
    from duplexmt.artifact import load_model_folder, read_manifest
    from duplexmt.evaluation import score, translate_pairs
    from duplexmt.report.table import summary, write_tables
    from duplexmt.streaming.systems import build_system
    from duplexmt.training.data import prepare_corpus, read_evaluation_file
    from duplexmt.training.run import choose_device

    data = recorded_data(read_manifest(cfg.model_folder)["data"], cfg.data, arguments)
    loaded = load_model_folder(cfg.model_folder, choose_device(cfg.device))
    settings_of_data = asdict(data)
    own_file = settings_of_data[f"{cfg.split}_path"]
    if own_file:
        names = ("source_field", "target_field", "source_language", "target_language")
        pairs, report = read_evaluation_file(own_file, **{name: settings_of_data[name] for name in names})
        log.info("%s: %d pairs\n%s", own_file, len(pairs), report.summary())
    else:
        for name in (
            "end_token",
            "seed_token",
            "source_prefix",
            "target_prefix",
            "licence",
            "batch_size",
            "batch_cells",
        ):
            del settings_of_data[name]  # the model brings its own, or does not need them
        pairs = prepare_corpus(**settings_of_data | {"tokenizer": loaded.tokenizer}).splits[cfg.split]
    pairs = pairs[: cfg.limit]

    rows, notes = [], []
    with open(folder / "hypotheses.jsonl", "w", encoding="utf-8") as out:
        for theta in cfg.policy.thetas:
            system = build_system(
                loaded, "grid", theta, max_target_tokens=cfg.policy.max_target_tokens, batch_size=cfg.batch_size
            )
            records = translate_pairs(system, pairs, loaded.tokenizer, f"θ = {theta}", sources=loaded.sources)
            for record in records:
                out.write(json.dumps({"system": "grid", "theta": theta} | record, ensure_ascii=False) + "\n")
            row, notes = score(records, loaded.tokenizer, data.source_language, data.target_language)
            rows.append({"system": "grid", "θ": theta} | row)
    write_tables(rows, folder, "results", caption=f"{cfg.model_folder}, {cfg.split} split", footnotes=notes)
    log.info("%s\n%s\nwritten to %s", summary(rows), "\n".join(notes), os.path.relpath(folder))
    return float(rows[-1]["BLEU"])


if __name__ == "__main__":
    sys.argv[1:] = quote_arguments(sys.argv[1:])
    main()
