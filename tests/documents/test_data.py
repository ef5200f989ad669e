"""docs/data.md: the template, the keys and the example are those of the code; flags of evaluation everywhere."""

import argparse
import re
from pathlib import Path

from fsrun.adapters import conventions, planfile
from fsrun.adapters.flags import add_eval_args
from fsrun.adapters.settings import SETTINGS, resolve
from fsrun.cli.eval import command
from fsrun.cli.evaloptions import SET_OPTIONS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "data.md").read_text()


def test_every_setting_of_a_set_has_a_row_and_a_flag() -> None:
    rows = TEXT.partition("## Settings of a set")[2]
    named = set(re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in rows.splitlines() if line[:3] == "| `")))
    assert named == set(SETTINGS) == set(SET_OPTIONS.values())


def test_the_template_of_choices_is_the_code_s() -> None:
    assert f"```\n{conventions.CHOICE_TEMPLATE}\n```" in TEXT


def test_the_keys_that_are_known_are_named() -> None:
    known = {*conventions.INPUT_KEYS, *conventions.LABEL_KEYS, *conventions.OPTION_KEYS}
    assert known <= set(re.findall(r"[\w.]*\w", TEXT))


def test_the_example_can_be_read(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.S)
    (tmp_path / "evals.yaml").write_text(text)
    gsm8k, aime = resolve(planfile.read(str(tmp_path / "evals.yaml")), {})
    assert (gsm8k.path, gsm8k.max_tokens) == (str(tmp_path / "gsm8k/test.parquet"), 2048)
    assert (aime.samples, aime.pass_k, aime.temperature, aime.system) == (16, (1, 16), 0.8, "Reason step by step.")


def test_every_flag_of_evaluation_that_is_named_exists() -> None:
    trainer = add_eval_args(argparse.ArgumentParser())._option_string_actions
    known = {*trainer, *(name for option in command.params for name in option.opts)}
    open_names = ("--eval-", "--eval-sglang-", "--sglang-")
    for path in (*ROOT.glob("docs/*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md", *ROOT.glob("fsrun/**/*.py")):
        for flag in re.findall(r"--(?:eval|sglang|keep-samples)[a-z-]*", path.read_text()):
            is_open = flag in open_names or flag.startswith(open_names[1:])
            assert is_open or flag in known, f"{path}: {flag}"
