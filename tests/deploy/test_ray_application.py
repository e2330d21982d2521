"""What deploy/ray_serve.py builds, without Ray: `tests/serving/test_ray.py` runs it on Ray."""

import sys
from types import ModuleType, SimpleNamespace

from duplexmt.serving import app


def test_a_replica_has_the_models_and_settings_of_serve_py(monkeypatch):
    made, hubs = [], []

    def ingress(build):
        made.append(build)
        return lambda: "application"

    ray = ModuleType("ray")
    ray.serve = SimpleNamespace(
        ingress=ingress,
        deployment=lambda application, **values: SimpleNamespace(bind=lambda: values),
        Application=object,
    )
    modules = {
        "ray": ray, "ray.serve": ray.serve, "ray.serve.config": SimpleNamespace(RequestRouterConfig=dict),
        "ray.serve.experimental": ModuleType("experimental"),
        "ray.serve.experimental.consistent_hash_router": SimpleNamespace(ConsistentHashRouter="by header"),
    }  # fmt: skip
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "deploy.ray_serve", None)  # to be put back as it was
    del sys.modules["deploy.ray_serve"]
    from deploy.ray_serve import application

    create = app.create_app
    monkeypatch.setattr(app, "create_app", lambda hub, **values: hubs.append(hub) or create(hub, **values))
    values = application({"model_folder": "models/zh-en", "replicas": "2", "engine.max_streams": "7"})
    made[0]()
    (hub,) = hubs
    assert [one.rpartition("/")[2] for one in hub.link.settings.model_folders] == ["zh-en"]
    assert (hub.max_streams, hub.link.settings.run_as) == (7, None)
    assert values["num_replicas"] == 2
