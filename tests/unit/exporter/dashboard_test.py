#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that Prometheus can evaluate each expression of the dashboard, and that the exporter exports each metric that
the dashboard or the alert rules name.

  dashboard_test.py PROMTOOL DASHBOARD RULES METRICS

METRICS: a file with all metrics in Prometheus' text format.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

VARIABLES = {"$__rate_interval": "5m", "$instance": ".*"}


def expressions(dashboard: dict) -> list[str]:
    found = []
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            text = target["expr"]
            for name, value in VARIABLES.items():
                text = text.replace(name, value)
            found.append(text)
    return found


def check_syntax(promtool: str, all_of_them: list[str]) -> None:
    # Each expression becomes a recording rule; JSON is YAML as well.
    rules = [{"record": f"expression{number}", "expr": text} for number, text in enumerate(all_of_them)]
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
        json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, file)
        file.flush()
        subprocess.run([promtool, "check", "rules", file.name], check=True)


def main() -> None:
    promtool, dashboard, rules, metrics = sys.argv[1:]
    exported = set(re.findall(r"(?m)^# TYPE (\S+)", pathlib.Path(metrics).read_text(encoding="utf-8")))
    of_dashboard = expressions(json.loads(pathlib.Path(dashboard).read_text(encoding="utf-8")))
    assert of_dashboard
    check_syntax(promtool, of_dashboard)
    for text in of_dashboard:
        assert "$" not in text, f"{dashboard}: a variable is unknown here: {text}"
    alerts = "\n".join(re.findall(r"(?ms)^ +expr:(.*?)^ +(?:for|labels):", pathlib.Path(rules).read_text(encoding="utf-8")))
    for place, text in ((dashboard, "\n".join(of_dashboard)), (rules, alerts)):
        named = set(re.findall(r"sharedgpu_\w+", text))
        assert named, place
        assert named <= exported, f"{place}: not exported: {sorted(named - exported)}"


main()
