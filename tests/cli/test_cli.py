"""The command line: exit codes and one-line errors people script against."""

from __future__ import annotations

import json

import pytest

from jupyter_gpushare.cli import main
from jupyter_gpushare.status import as_text

GIB = 2**30

STATUS = {
    "simulated": True,
    "degraded": [{"code": "ledger", "message": "Usage is not being recorded just now."}],
    "summary": {"devices": 2, "free": 1.5, "waiting": 1},
    "servers": [
        {
            "name": "alpha",
            "devices": [
                {
                    "index": 0,
                    "model": "A100",
                    "state": "healthy",
                    "in_pool": True,
                    "utilization": 0.86,
                    "memory_used": 31 * GIB,
                    "memory_total": 80 * GIB,
                    "temperature_c": 63.2,
                    "power_w": 310.0,
                    "allocated": 0.5,
                },
                {
                    "index": 1,
                    "model": "A100",
                    "state": "unknown",
                    "in_pool": True,
                    "utilization": None,
                    "memory_used": None,
                    "memory_total": None,
                    "temperature_c": None,
                    "power_w": None,
                    "allocated": 0.0,
                },
            ],
        }
    ],
    "sessions": [],
}


def test_bad_usage_is_one_line_and_exit_code_2(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["demo", "--port", "high"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        "jupyter gpushare demo: argument --port: 'high' is not a port from 0 to 65535. "
        "See jupyter gpushare demo --help\n"
    )


def test_an_address_that_cannot_be_one_is_exit_code_2(capsys):
    assert main(["status", "--url", "ftp://host"]) == 2
    assert capsys.readouterr().err.startswith("jupyter gpushare status: --url: 'ftp://host' is not usable")


def test_nobody_at_the_socket_is_exit_code_1_and_says_what_to_do(tmp_path, capsys):
    assert main(["status", "--url", f"unix://{tmp_path}/none.sock"]) == 1
    said = capsys.readouterr().err
    assert "No GPU service answers" in said
    assert "Start JupyterLab" in said
    assert said.count("\n") == 1


def test_the_table_says_unknown_where_nothing_was_read():
    lines = as_text(STATUS).splitlines()
    assert lines[0] == "1.5 of 2 GPUs free, 1 waiting  (simulated)"
    assert lines[1] == "! Usage is not being recorded just now."
    first, second = lines[4], lines[5]
    assert " ".join(first.split()) == "GPU 0 A100 healthy 86% 31.0 GiB of 80.0 GiB 63 °C 310 W 50% alpha"
    assert " ".join(second.split()) == "GPU 1 A100 unknown – – of – – – 0% alpha"


def test_doctor_prints_findings_as_json(capsys):
    assert main(["doctor", "--json"]) in (0, 1)
    findings = json.loads(capsys.readouterr().out)
    assert {"check", "state", "finding", "cause", "fix"} <= set(findings[0])
