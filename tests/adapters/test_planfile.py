"""The YAML form of an evaluation, and which level of a setting counts."""

from pathlib import Path
from typing import Any

import pytest

from fsrun.adapters import planfile
from fsrun.adapters.plan import SetPlan
from fsrun.adapters.settings import SetSource, read_settings, resolve
from fsrun.core.errors import UsageError


def sources(folder: Path, text: str) -> list[SetSource]:
    path = folder / "evals.yaml"
    path.write_text(text)
    return planfile.read(str(path))


def plans(folder: Path, text: str, **flags: Any) -> tuple[SetPlan, ...]:
    return resolve(sources(folder, text), read_settings(flags, "flags"))


def test_the_set_counts_before_the_defaults_before_the_flags_before_what_is_built_in(tmp_path: Path) -> None:
    text = """
defaults: {temperature: 0.5, top_p: 0.9}
sets:
  - {name: a, path: a.jsonl, temperature: 0.1}
  - {name: b, path: /data/b.parquet}
"""
    a, b = plans(tmp_path, text, temperature=0.7, top_p=0.8, top_k=5)
    assert (a.temperature, a.top_p, a.top_k, a.max_tokens) == (0.1, 0.9, 5, 1024)
    assert (b.temperature, b.top_p, b.top_k, b.max_tokens) == (0.5, 0.9, 5, 1024)
    assert (a.path, b.path) == (str(tmp_path / "a.jsonl"), "/data/b.parquet")


def test_every_setting_of_a_set_is_read(tmp_path: Path) -> None:
    (tmp_path / "t.jinja").write_text("{{ messages }}")
    text = """
sets:
  aime:
    path: aime.jsonl
    input_key: problem
    label_key: answer
    grader: grade.py:mine
    samples: 16
    pass_k: [16, 1]
    temperature: 8e-1
    top_p: 0.95
    top_k: 20
    max_response_len: 4096
    system: Be short.
    chat_template: t.jinja
    stop: ["Question:", "\\n\\n"]
    limit: 30
"""
    (plan,) = plans(tmp_path, text)
    assert plan == SetPlan(
        name="aime",
        path=str(tmp_path / "aime.jsonl"),
        input_key="problem",
        label_key="answer",
        grader=str(tmp_path / "grade.py:mine"),
        samples=16,
        pass_k=(1, 16),
        temperature=0.8,
        top_p=0.95,
        top_k=20,
        max_tokens=4096,
        system="Be short.",
        chat_template="{{ messages }}",
        stop=("Question:", "\n\n"),
        limit=30,
    )


def test_several_samples_are_drawn_with_a_temperature_and_tell_pass_at_k(tmp_path: Path) -> None:
    text = (
        "sets:\n- {name: a, path: a, samples: 4}\n- {name: b, path: b}\n"
        "- {name: c, path: c, samples: 4, temperature: 0}"
    )
    a, b, c = plans(tmp_path, text)
    assert (a.temperature, a.pass_k) == (1.0, (4,))
    assert (b.temperature, b.pass_k) == (0.0, ())
    assert (c.temperature, c.pass_k) == (0.0, (4,))


def test_each_set_has_the_pass_at_k_that_its_own_samples_allow(tmp_path: Path) -> None:
    text = "defaults: {samples: 16, pass_k: [1, 16]}\nsets:\n- {name: a, path: a}\n- {name: b, path: b, samples: 4}"
    a, b = plans(tmp_path, text)
    assert (a.samples, a.pass_k, b.samples, b.pass_k) == (16, (1, 16), 4, (1,))
    (c,) = plans(tmp_path, "sets:\n- {name: c, path: c, samples: 2}", samples=8, pass_k=(8,))
    assert (c.samples, c.pass_k) == (2, (2,))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("set: []", r"evals.yaml: unknown key 'set'; is it sets\?"),
        ("sets: []", r"no list of eval sets"),
        ("- a", r"no mapping of settings, but \['a'\]"),
        ("sets:\n- {name: a, path: x, temprature: 1}", r"set a: unknown key 'temprature'; is it temperature\?"),
        ("sets:\n- {name: a, path: x, zzz: 1}", r"set a: unknown key 'zzz'; there are: input_key, "),
        ("defaults: {top_q: 1}\nsets:\n- {name: a, path: x}", r"defaults: unknown key 'top_q'; is it top_p\?"),
        ("sets:\n- {name: a}", r"set a: it needs a path"),
        ("sets:\n- {path: a}", r"set 1: it needs a name"),
        ("sets:\n- {name: no, path: a}", r"set False: name is False, no text"),
        ("sets:\n- {name: a, path: x, temperature: hot}", r"temperature is 'hot'; it is a number, 0 to 100"),
        ("sets:\n- {name: a, path: x, temperature: -1}", r"temperature is -1; it is a number, 0 to 100"),
        ("sets:\n- {name: a, path: x, top_p: 0}", r"top_p is 0; it is a number, above 0 to 1"),
        ("sets:\n- {name: a, path: x, top_k: 0}", r"top_k is 0; it is -1 \(all tokens\), or 1 and more"),
        ("sets:\n- {name: a, path: x, samples: 1.5}", r"samples is 1.5; it is a whole number of 1 or more"),
        ("sets:\n- {name: a, path: x, samples: true}", r"samples is True; it is a whole number"),
        ("sets:\n- {name: a, path: x, samples: 2, pass_k: 4}", r"set a: pass_k 4 of 2 samples a prompt"),
        ("sets:\n- {name: a, path: x, samples: 2, n_samples: 3}", r"n_samples is said twice"),
        (
            "sets:\n- {name: a, path: x, chat_template: no.jinja}",
            r"chat_template is .*no.jinja.*; it is none, the t",
        ),
        ("sets:\n- {name: a, path: x, system: s, chat_template: none}", r"a system prompt needs a chat template"),
        ("sets:\n- {name: a, path: x}\n- {name: a, path: y}", r"set a: a second set of the name 'a'"),
        ("sets:\n- {name: a, path: x}\n- {name: a/b, path: y}", r"the tags of the sets 'a' and 'a/b' would mix"),
        ("sets:\n- {name: lag_steps, path: x}", r"eval/lag_steps is a point of its own"),
        ("sets:\n- {name: '', path: x}", r"the name '' of a set"),
        ("sets:\n- {name: a, path: x, limit: 1, limit: 2}", r"line 2: no YAML: the key 'limit' stands twice"),
        ("sets: [", r"line 1: no YAML"),
        ("sets: !!python/object/apply:os.system [true]", r"line 1: no YAML: could not determine a constructor"),
    ],
)
def test_what_cannot_be_is_one_line_with_file_set_and_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        plans(tmp_path, text)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.yaml: No such file"):
        planfile.read(str(tmp_path / "none.yaml"))
