"""The files of deploy/ are taken by the programs they are for."""

import re
import shutil
import socket
import ssl
import subprocess
from pathlib import Path

import pytest
import yaml

from ..serving.live_server import Speaker, serving, translated
from ..serving.test_nginx import NGINX, TEXT, free_port, running
from ..test_config import checked
from .image import instructions, is_left_out

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
SYSTEMD = shutil.which("systemd-analyze")
HIGHEST_EXPOSURE = 1.5  # of 10, as `systemd-analyze security` counts


@pytest.mark.skipif(SYSTEMD is None, reason="there is no systemd-analyze here")
def test_the_unit_is_valid_and_hardened(tmp_path):
    unit, program = tmp_path / "duplexmt.service", tmp_path / "duplexmt-serve"
    program.touch(0o755)
    text = (DEPLOY / unit.name).read_text(encoding="utf-8")
    unit.write_text(text.replace("/opt/duplexmt/bin/duplexmt-serve", str(program)), encoding="utf-8")
    done = subprocess.run([SYSTEMD, "verify", unit], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    told = subprocess.run([SYSTEMD, "security", "--offline=true", unit], capture_output=True, text=True, check=True)
    (exposure,) = re.findall(r"Overall exposure level.*: ([\d.]+)", told.stdout)
    assert float(exposure) <= HIGHEST_EXPOSURE


def test_what_compose_and_the_unit_start_takes_their_settings():
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]
    given = [re.sub(r"\$\{\w+:\?[^}]*\}", "live.example.org", one) for one in services["duplexmt"]["command"]]
    (unit,) = re.findall(r"^ExecStart=\S+ (.*)$", (DEPLOY / "duplexmt.service").read_text(encoding="utf-8"), re.M)
    for arguments in ([*given, "host=0.0.0.0", "token=secret"], unit.split()):
        cfg = checked("serve", *arguments)
        assert cfg.limits.connections < 8192 == services["duplexmt"]["ulimits"]["nofile"]
    assert cfg.limits.drain_seconds < float(services["duplexmt"]["stop_grace_period"].removesuffix("s"))
    for service in services.values():
        for volume in service.get("volumes", []):
            path = volume.split(":")[0]
            assert path == "./certificates" or (DEPLOY / path).is_file()


def test_an_image_holds_the_product_and_a_model_and_nothing_else():
    rules = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    seen = {"duplexmt/config.py", "conf/serve.yaml", "models/zh-en/model.safetensors", "serve.py", "setup.py"}
    unseen = {"data/tatoeba.zh-en.tsv.gz", "tests/helpers.py", ".git/config", "runs/mine/run.log", ".venv/bin/python"}
    assert not any(is_left_out(path, rules) for path in seen | {"runs/mine/model/duplexmt.json"})
    assert all(is_left_out(path, rules) for path in unseen)
    assert all((ROOT / path).is_file() for path in seen)
    known = {"FROM", "ARG", "ENV", "RUN", "WORKDIR", "COPY", "USER", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT"}
    assert {what for what, _ in instructions((ROOT / "Dockerfile").read_text(encoding="utf-8"))} <= known


@pytest.mark.slow
@pytest.mark.skipif(NGINX is None or shutil.which("openssl") is None, reason="there is no nginx or no openssl here")
def test_nginx_with_tls_hands_sessions_to_the_server_and_others_to_https(tmp_path, monkeypatch):
    name, plain, secure = "live.example.org", free_port(), free_port()
    (tmp_path / "certificates").mkdir()
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-addext",
         f"subjectAltName=DNS:{name}", "-keyout", "privkey.pem", "-out", "fullchain.pem"],
        cwd=tmp_path / "certificates", check=True, capture_output=True,
    )  # fmt: skip
    with serving(monkeypatch, proxies=["127.0.0.0/24"], hosts=[name], origins=[]) as server:
        text = (DEPLOY / "nginx-tls.conf").read_text(encoding="utf-8")
        for old, new in (("listen 80;", f"listen 127.0.0.1:{plain};"), ("listen 443 ", f"listen 127.0.0.1:{secure} "),
                         ("duplexmt:8000", f"127.0.0.1:{server.port}")):  # fmt: skip
            assert text.count(old) == 1
            text = text.replace(old, new)
        with running(tmp_path, text, secure):
            trust = ssl.create_default_context(cafile=tmp_path / "certificates" / "fullchain.pem")
            way = {"ssl": trust, "server_hostname": name, "sock": socket.create_connection(("127.0.0.1", secure))}
            speaker = Speaker(
                f"wss://{name}:{secure}/v1/live", {"type": "start"}, way, Origin=f"https://{name}:{secure}"
            )
            speaker.say(type="text", at=0, text=TEXT)
            assert speaker.whole() == translated(TEXT)
            asked = ["curl", "-s", "-w", "%{redirect_url}", "-o", "/dev/null", "-H", f"Host: {name}"]
            moved = subprocess.run([*asked, f"http://127.0.0.1:{plain}/"], capture_output=True, text=True, check=True)
            assert moved.stdout == f"https://{name}/"
