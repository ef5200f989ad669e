"""Starts the viewer of an installed fsrun, asks for what a browser asks for, and ends it: ``page.py FSRUN ROOT``."""

import json
import subprocess
import sys
import urllib.request

ASKED = {
    "": "text/html",
    "app.js": "text/javascript",
    "style.css": "text/css",
    "vendor/uPlot.esm.js": "text/javascript",
    "vendor/uPlot.min.css": "text/css",
    "api/info": "application/json",
    "api/runs": "application/json",
    "metrics": "text/plain",
}


def main(fsrun: str, root: str) -> int:
    server = subprocess.Popen([fsrun, "up", root, "--port", "0"], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        address = server.stdout.readline().split()[-1]
        answers = {}
        for path, kind in ASKED.items():
            with urllib.request.urlopen(address + path, timeout=60) as answer:
                answers[path] = answer.read()
                assert answer.headers["content-type"].startswith(kind), (path, answer.headers["content-type"])
                print(f"{len(answers[path]):>8} bytes  /{path}")
        assert json.loads(answers["api/info"])["charts"] is True
        while json.loads(answers["api/runs"])["scanning"]:
            with urllib.request.urlopen(f"{address}api/runs", timeout=60) as answer:
                answers["api/runs"] = answer.read()
        rows = json.loads(answers["api/runs"])["runs"]
        assert rows, "no run is shown"
        for row in rows:
            key = row["key"]
            for tail in ("", "/tags", "/evals", "/console", "/system", "/files"):
                with urllib.request.urlopen(f"{address}api/runs/{key}{tail}", timeout=60) as answer:
                    assert json.load(answer) is not None
        print(f"{len(rows)} runs")
    finally:
        server.terminate()
        code = server.wait(60)
    return code


sys.exit(main(*sys.argv[1:]))
