"""A tokenizer of transformers, from a folder: the ids are those of transformers itself, and nothing is downloaded."""

import shutil
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fsrun.adapters.datasets import Prompt
from fsrun.adapters.evaluation import EvaluationError
from fsrun.adapters.plan import SetPlan
from fsrun.adapters.tokens import Tokenizers
from support import toymodel

pytestmark = pytest.mark.integration
SET = SetPlan("sums", "sums.jsonl")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("models") / "toy"
    toymodel.tokenizer().save_pretrained(place)
    return place


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)


def test_ids_are_those_of_the_chat_template_also_once_the_quicker_way_is_taken(folder: Path) -> None:
    tokens = Tokenizers().get(str(folder))
    tokenizer = toymodel.tokenizer()
    texts = [f"What is {i} + {i * i}? Ünïcödé 数 {'x' * i}" for i in range(40)]
    for row, text in enumerate(texts):
        chat: list[dict[str, Any]] = [{"role": "user", "content": text}]
        expected = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
        assert list(tokens.render(SET, Prompt(row, None, text=text)).ids) == expected
        as_it_is = tokens.render(SetPlan("plain", "x", chat_template="none"), Prompt(row, None, text=text))
        assert list(as_it_is.ids) == tokenizer(text)["input_ids"]


def test_a_tokenizer_that_was_saved_with_a_length_does_not_cut_prompts(folder: Path, tmp_path: Path) -> None:
    cutting = toymodel.tokenizer()
    cutting.backend_tokenizer.enable_truncation(8)
    cutting.backend_tokenizer.enable_padding(length=16)
    cutting.save_pretrained(tmp_path / "cutting")
    tokens = Tokenizers().get(str(tmp_path / "cutting"))
    for row in range(20):
        assert len(tokens.render(SET, Prompt(row, None, text=f"a b c d e f g h {row} " * 10)).ids) > 50


def test_a_template_of_the_set_and_tools_reach_the_renderer(folder: Path) -> None:
    template = "{%- if tools %}tools: {{ tools | length }}\n{% endif %}{{ messages[0]['content'] }}"
    plan = SetPlan("sums", "x", chat_template=template)
    tokens = Tokenizers().get(str(folder))
    tool = {"type": "function", "function": {"name": "add", "parameters": {}}}
    assert tokens.render(plan, Prompt(0, None, text="hi", tools=[tool])).text == "tools: 1\nhi"
    assert tokens.render(plan, Prompt(1, None, text="hi", tools=[])).text == "hi"
    with pytest.raises(EvaluationError, match="row 2: the chat template"):
        tokens.render(SetPlan("sums", "x", chat_template="{{ messages[9].content.x }}"), Prompt(2, None, text="hi"))


def test_the_same_files_in_another_folder_are_not_read_again(folder: Path, tmp_path: Path) -> None:
    tokenizers = Tokenizers()
    first = tokenizers.get(str(folder))
    shutil.copytree(folder, tmp_path / "step-2")
    assert tokenizers.get(str(tmp_path / "step-2")) is first
    assert first.folder == str(tmp_path / "step-2")
    (tmp_path / "step-2" / "chat_template.jinja").write_text("{{ messages }}")
    assert tokenizers.get(str(tmp_path / "step-2")) is not first


def test_code_that_a_folder_brings_along_is_not_run(folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "with-code"
    shutil.copytree(folder, place)
    (place / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["own.Own", null]}}'
    )
    (place / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Own: pass\n")
    with suppress(EvaluationError):
        Tokenizers().get(str(place))
    assert not (tmp_path / "ran").exists()
