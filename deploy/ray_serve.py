"""The live server as a Ray Serve deployment: `pip install ".[ray]"`, and from the root of the project

    RAY_SERVE_SESSION_ID_HEADER_KEY=x-session-id serve run deploy.ray_serve:application \\
        model_folder=/…/model replicas=2 cores=2

All settings of conf/serve.yaml but `host` and `port`, which are Ray's; `replicas`, and cores (or `gpus`) of each. The
engine of a replica is a process of its own, as in `serve.py`.

A session lives in one replica. Ray sends a client there by a header that the client keeps, any text chosen at random;
browsers set none, so nginx goes before Ray and makes it of its own cookie (`proxy_set_header X-Session-Id
$duplexmt_route`, deploy/nginx.conf). When a replica dies, so do its sessions: a `resume` is answered by 4404 at another
one, and the client starts anew with the sentence that was not over.
"""

from pathlib import Path

from hydra import compose, initialize_config_dir
from ray import serve
from ray.serve.config import RequestRouterConfig
from ray.serve.experimental.consistent_hash_router import ConsistentHashRouter
from starlette.applications import Starlette
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from duplexmt.config import ServeSettings, register_schemas, settings

CONF = Path(__file__).resolve().parents[1] / "conf"
OF_RAY = {"replicas": 1, "cores": 1, "gpus": 0}  # settings of its own, and what they are at first
BESIDE = 100  # requests of a replica that are no sessions: pages, probes, those that are told to come back


def application(arguments: dict[str, str]) -> serve.Application:
    """The deployment, for `serve run`. ValueError for settings that are none."""
    values = dict(arguments)
    replicas, cores, gpus = (float(values.pop(name, default)) for name, default in OF_RAY.items())
    register_schemas()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = settings(ServeSettings, compose("serve", [f"{name}={value}" for name, value in values.items()]))

    def build() -> Starlette:
        from duplexmt.model_folder.default_model import chosen_models
        from duplexmt.serving.app import create_app
        from duplexmt.serving.hub import Hub

        engine = cfg.engine_settings(chosen_models(cfg.model_folders))
        hub = Hub(engine, cfg.limits, step_deadline=cfg.step_deadline, start_deadline=cfg.start_deadline)
        app = create_app(hub, token=cfg.token, hosts=cfg.hosts, origins=cfg.origins)
        app.add_middleware(ProxyHeadersMiddleware, trusted_hosts=cfg.proxies)
        return app

    deployment = serve.deployment(
        serve.ingress(build)(),
        name="live",
        num_replicas=int(replicas),
        max_ongoing_requests=cfg.limits.sessions + BESIDE,
        graceful_shutdown_timeout_s=cfg.limits.drain_seconds + 2,
        ray_actor_options={"num_cpus": cores, "num_gpus": gpus},
        request_router_config=RequestRouterConfig(request_router_class=ConsistentHashRouter),
    )
    return deployment.bind()
