"""The doctor on real shared folders: what it says of them, also through two mounts, and that nothing is left."""

from __future__ import annotations

import sys

from tests.shared.site import REPO, Site
from tools.nfsbed.remote import PATH


def test_a_shared_folder_is_found_fit_and_late_names_are_told(site: Site) -> None:
    words = [sys.executable, "-m", "fsrun", "doctor", site.root, "--json", "--seconds", "4"]
    mount, _, name = site.root.rpartition("/")
    other = {"/run/v4": "/run/v3", "/run/v3": "/run/v4"}.get(mount)
    if other is not None:
        words += ["--also", f"{other}/{name}"]
    # One line: the bed takes a line that begins like JSON for a whole object.
    script = '"$@" >/run/tmp/doctor; code=$?; tr -d "\\n" </run/tmp/doctor; echo; exit $code'
    env = {"PATH": PATH, "PYTHONPATH": str(REPO), "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": "/run/tmp"}
    process = site.bed.hosts["A"].start(["sh", "-c", script, "sh", *words], env, "/run/tmp")
    try:
        code = process.wait(200)
        said = process.said[0]
        findings = {finding["what"]: finding for finding in said["findings"]}
        assert code == 0, [f for f in said["findings"] if f["severity"] == "unfit"]
        assert findings["mount"]["found"].startswith(("fuse", "nfs"))
        assert findings["exclusion"]["severity"] == "fit"
        if other is not None:
            # Without the rule a name that was asked for too early stays hidden for half a minute.
            assert (
                "without opening the folder first: more than 4 s" in findings["absent name, the other mount"]["found"]
            )
        assert site.bed.hosts["A"].run("ls", "-A", site.root).split() == []
    finally:
        process.close()
