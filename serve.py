"""Serve live translation to many speakers: `python serve.py model_folder=runs/latest/model port=8000`."""

import gc
import sys

import hydra
from omegaconf import DictConfig

from duplexmt.command_line import user_errors
from duplexmt.common.arguments import check_arguments, quote_arguments
from duplexmt.config import ServeSettings, register_schemas, settings

register_schemas()


@hydra.main(version_base="1.3", config_path="conf", config_name="serve")
def main(cfg: DictConfig) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    with user_errors():
        serve(settings(ServeSettings, cfg))


def serve(cfg: ServeSettings) -> None:
    """Start engine and server."""
    from duplexmt.model_folder.default_model import chosen_models
    from duplexmt.model_folder.manifest import check_runs_as, read_manifest
    from duplexmt.serving import server
    from duplexmt.serving.app import create_app
    from duplexmt.serving.hub import Hub
    from duplexmt.serving.log import log_to_stderr

    log_to_stderr()
    folders = chosen_models(cfg.model_folders)
    for folder in folders:  # no address is told of a server without a model
        check_runs_as(folder, read_manifest(folder), cfg.run_as)
    server.make_room(cfg.limits.connections)
    engine = cfg.engine_settings(folders)
    hub = Hub(engine, cfg.limits, step_deadline=cfg.step_deadline, start_deadline=cfg.start_deadline)
    app = create_app(hub, token=cfg.token, hosts=[*cfg.hosts, cfg.host], origins=cfg.origins)
    listening = server.listen(cfg.host, cfg.port)
    address = f"[{cfg.host}]" if ":" in cfg.host else cfg.host
    gc.freeze()  # what is loaded by now is not looked through again while clients wait
    print(f"http://{address}:{listening.getsockname()[1]}/", flush=True)
    server.serve(app, hub, listening, proxies=cfg.proxies)
    if hub.link.failed is not None:
        raise ValueError(hub.link.failed)


if __name__ == "__main__":
    with user_errors():
        sys.argv[1:] = check_arguments(ServeSettings, quote_arguments(sys.argv[1:]))
    main()
