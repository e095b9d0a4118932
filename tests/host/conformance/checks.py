"""Compares the checks that failed with a list: checks.py LIST FOLDER. Of each scenario in the list exactly these have to fail."""

import json
import pathlib
import sys

listed, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
lines = [line.split() for line in listed.read_text().splitlines() if line and not line.startswith("#")]
is_same = True
for scenario in sorted({scenario for scenario, _ in lines}):
    wanted = {check for name, check in lines if name == scenario}
    runs = list(folder.rglob(f"server-{scenario}-2*/checks.json"))
    checks = [check for run in runs for check in json.loads(run.read_text())]
    failed = {check["id"] for check in checks if check["status"] == "FAILURE"}
    passed = sum(check["status"] == "SUCCESS" for check in checks)
    print(f"{scenario}: {passed} checks passed, {len(failed)} failed, {len(wanted)} of them expected")
    for check in sorted(failed ^ wanted):
        is_same = False
        print(f"  ✗ {check}: {'failed' if check in failed else 'expected to fail, but did not'}")
sys.exit(not is_same)
