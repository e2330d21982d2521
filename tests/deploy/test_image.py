"""Dockerfile, done step by step in a fresh Debian: what comes of it serves, as nobody in particular.

It takes some minutes and 10 GB, and asks Debian's mirror and pip's index: `make test-image`.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from duplexmt.protocol.client import Client

from ..serving.test_nginx import free_port
from .image import build, context

ROOT = Path(__file__).parents[2]
WHEELS = Path("/wheels")
pytestmark = pytest.mark.skipif(
    "TEST_IMAGE" not in os.environ or shutil.which("debootstrap") is None or os.geteuid() != 0,
    reason="make test-image, as root, with debootstrap",
)


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    folder = tmp_path_factory.mktemp("image")
    wheels, seen, base = folder / "wheels", folder / "context", folder / "base"
    context(ROOT, seen)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "wheel", "-w", wheels, "torch==2.13.0", "setuptools", seen], check=True)
    shutil.rmtree(seen)
    context(ROOT, seen)  # without what the build left
    packages = "--include=python3,python3-venv,ca-certificates"
    subprocess.run(["debootstrap", "--variant=minbase", packages, "bookworm", base], check=True)
    shutil.copytree(wheels, base / WHEELS.name, copy_function=os.link)
    for wheel in (base / WHEELS.name).glob("duplexmt-*"):
        wheel.unlink()  # the image builds its own
    around = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(WHEELS)}  # of the same packages: nothing is fetched within
    yield build((ROOT / "Dockerfile").read_text(encoding="utf-8"), seen, base, folder, around=around)
    shutil.rmtree(folder)


def test_the_image_serves_and_its_health_is_told(image):
    port = free_port()
    image.env["DUPLEXMT_TOKEN"] = "secret"
    with subprocess.Popen(image.command([*image.entrypoint, f"port={port}"])) as process:
        try:
            health = image.command([word.replace(":8000/", f":{port}/") for word in image.healthcheck])
            patience = time.monotonic() + 120
            while subprocess.run(health, stderr=subprocess.DEVNULL, check=False).returncode:
                assert process.poll() is None
                assert time.monotonic() < patience, "it never became healthy"
                time.sleep(0.5)
            with Client(f"ws://127.0.0.1:{port}/v1/live", token="secret") as client:
                client.send("你昨天去哪儿了？")
                client.end()
                assert "where" in "".join(event["text"] for event in client).lower()
            status = Path(f"/proc/{process.pid}/status").read_text()
            users = next(line for line in status.splitlines() if line.startswith("Uid:"))
            assert "0" not in users.split()[1:], "it runs as root"
        finally:
            process.send_signal(signal.SIGTERM)
    assert process.returncode == 0


def test_without_a_token_it_says_what_is_missing(image):
    image.env.pop("DUPLEXMT_TOKEN", None)
    done = subprocess.run(image.command(image.entrypoint), stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode != 0
    assert "DUPLEXMT_TOKEN" in done.stderr


def test_no_file_of_the_image_is_writable_by_its_user(image):
    found = subprocess.run(image.command(["find", "/opt", "/model", "-writable", "-not", "-type", "l"]),
                           stdout=subprocess.PIPE, text=True, check=True).stdout  # fmt: skip
    assert found == ""
