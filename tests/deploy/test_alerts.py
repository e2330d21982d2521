"""Each alert of deploy/alerts.yml rings when it should and only then, as Prometheus' own tool runs them."""

import json
import re
import shutil
import subprocess

import pytest
import yaml

from duplexmt.serving.metrics import Metrics

from .test_files import DEPLOY

PROMTOOL = shutil.which("promtool")
RULES = DEPLOY / "alerts.yml"
SERVER = 'job="duplexmt", instance="a:8000"'
ALL_IS_WELL = {
    "up{SERVER}": "1x40",
    "duplexmt_engines_total{SERVER}": "0 1x39",
    "duplexmt_waiting{SERVER}": "0 3 0 5 0 1 0x34",
    'duplexmt_delay_seconds_bucket{SERVER, le="0.25"}': "0+10x40",
    'duplexmt_delay_seconds_bucket{SERVER, le="0.5"}': "0+10x40",
    'duplexmt_delay_seconds_bucket{SERVER, le="+Inf"}': "0+10x40",
    'duplexmt_rejected_total{SERVER, reason="normal"}': "_x10 1+1x30",
}
IN_TROUBLE = {
    "DuplexmtDown": {"up{SERVER}": "1x10 0x30"},
    "DuplexmtNeverReady": {"duplexmt_engines_total{SERVER}": "0x40"},
    "DuplexmtEngineLost": {"duplexmt_engines_total{SERVER}": "0 1x29 2x10"},
    "DuplexmtLate": {'duplexmt_delay_seconds_bucket{SERVER, le="0.25"}': "0+9x40"},
    "DuplexmtFull": {"duplexmt_waiting{SERVER}": "0x10 2x30"},
    "DuplexmtRefuses": {'duplexmt_rejected_total{SERVER, reason="busy"}': "_x29 1x10"},
}


def rules():
    return yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"][0]["rules"]


def test_each_alert_has_its_case_and_asks_for_what_the_server_says():
    assert [rule["alert"] for rule in rules()] == list(IN_TROUBLE)
    said = Metrics().text().decode()
    for rule in rules():
        for name in re.findall(r"duplexmt_\w+", rule["expr"]):
            assert f"# TYPE {name.removesuffix('_bucket')} " in said, name


@pytest.mark.skipif(PROMTOOL is None, reason="there is no promtool here (Debian: prometheus)")
@pytest.mark.parametrize("trouble", [None, *IN_TROUBLE])
def test_an_alert_rings_in_its_trouble_and_no_other_does(tmp_path, trouble):
    values = ALL_IS_WELL | IN_TROUBLE.get(trouble, {})
    series = [{"series": name.replace("SERVER", SERVER), "values": those} for name, those in values.items()]
    ringing = {
        rule["alert"]: f'count(ALERTS{{alertname="{rule["alert"]}", alertstate="firing"}}) or vector(0)'
        for rule in rules()
    }
    expected = [
        {"expr": asked, "eval_time": "36m", "exp_samples": [{"labels": "{}", "value": int(name == trouble)}]}
        for name, asked in ringing.items()
    ]
    case = {"interval": "1m", "input_series": series, "promql_expr_test": expected}
    file = tmp_path / "case.yml"
    file.write_text(json.dumps({"rule_files": [str(RULES)], "tests": [case]}), encoding="utf-8")
    done = subprocess.run([PROMTOOL, "test", "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
