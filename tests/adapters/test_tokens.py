"""Prompts as ids: which template, which messages, and what cannot be rendered."""

import sys
from pathlib import Path
from typing import Any

import pytest

from fsrun.adapters import tokens as module
from fsrun.adapters.datasets import Prompt
from fsrun.adapters.evaluation import EvaluationError
from fsrun.adapters.plan import SetPlan
from fsrun.adapters.tokens import Tokenizers, Tokens, plain
from support.words import WordTokenizer, tokens

SET = SetPlan("sums", "sums.jsonl")
HI = [{"role": "user", "content": "hi"}]


def text(plan: SetPlan, prompt: Prompt) -> str:
    return tokens().render(plan, prompt).text


def test_a_chat_goes_through_the_template_and_a_plain_prompt_as_a_user_s_message() -> None:
    assert text(SET, Prompt(0, None, messages=HI)) == "user: hi\nassistant:"
    assert text(SET, Prompt(0, None, text="hi")) == "user: hi\nassistant:"


def test_a_plain_prompt_is_sent_as_it_is_where_the_set_or_the_tokenizer_has_no_template() -> None:
    rendered = tokens().render(SetPlan("s", "x", chat_template="none"), Prompt(0, None, text="one two"))
    assert (rendered.text, list(rendered.ids)) == ("one two", [0, 3, 3])
    bare = WordTokenizer()
    bare.chat_template = None
    assert Tokens(bare, "/nowhere").render(SET, Prompt(0, None, text="hi")).text == "hi"


def test_a_system_prompt_comes_before_chats_that_have_none() -> None:
    plan = SetPlan("s", "x", system="be brief")
    own = [{"role": "system", "content": "be kind"}, *HI]
    assert text(plan, Prompt(0, None, messages=HI)) == "system: be brief\nuser: hi\nassistant:"
    assert text(plan, Prompt(0, None, text="hi")) == "system: be brief\nuser: hi\nassistant:"
    assert text(plan, Prompt(0, None, messages=own)) == "system: be kind\nuser: hi\nassistant:"


def test_a_last_message_of_the_assistant_is_continued() -> None:
    begun = [*HI, {"role": "assistant", "content": "The answer is"}]
    assert text(SET, Prompt(0, None, messages=begun)) == "user: hi\nassistant: The answer is"


@pytest.mark.parametrize(
    ("plan", "prompt"),
    [
        (SetPlan("s", "x", chat_template="none", system="be brief"), Prompt(0, None, text="hi")),
        (SetPlan("s", "x", chat_template="none"), Prompt(0, None, messages=[*HI, *HI])),
        (SetPlan("s", "x", chat_template="none"), Prompt(0, None, messages=HI, tools=[{"name": "add"}])),
        (SET, Prompt(0, None, messages=[])),
        (SET, Prompt(0, None, messages=[{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}])),
    ],
)
def test_what_cannot_be_rendered_says_which_row_and_what_to_set(plan: SetPlan, prompt: Prompt) -> None:
    with pytest.raises(EvaluationError, match=rf"set {plan.name}, row 0: "):
        text(plan, prompt)


def test_a_template_that_raises_is_an_error_of_the_evaluation() -> None:
    class Broken(WordTokenizer):
        def apply_chat_template(self, messages: Any, **settings: Any) -> str:
            raise ZeroDivisionError("roles must\nalternate")

    with pytest.raises(EvaluationError) as caught:
        Tokens(Broken(), "/models/toy").render(SET, Prompt(3, None, messages=HI))
    assert caught.value.reason == (
        "set sums, row 3: the chat template of /models/toy failed: ZeroDivisionError: roles must alternate"
    )


def test_rows_of_tables_reach_the_template_as_plain_python() -> None:
    numpy = pytest.importorskip("numpy")
    seen: list[Any] = []

    class Watching(WordTokenizer):
        def apply_chat_template(self, messages: Any, **settings: Any) -> str:
            seen.append((messages, settings["tools"]))
            return ""

    call = {"type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    messages = [
        {
            "role": "user",
            "content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}],
            "tool_calls": None,
        },
        {"role": "assistant", "content": None, "tool_calls": numpy.array([call], dtype=object)},
        {"role": "user", "content": "x", "tool_calls": numpy.array([], dtype=object), "name": None},
    ]
    empty = numpy.array([], dtype=object)
    Tokens(Watching(), "/x").render(SET, Prompt(0, None, messages=numpy.array(messages, dtype=object), tools=empty))
    (rendered, tools), *_ = seen
    assert tools is None
    assert rendered == [
        {"role": "user", "content": "one two"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}],
        },
        {"role": "user", "content": "x"},
    ]
    assert type(plain(numpy.int64(3))) is int


def test_a_render_is_kept_until_the_prompt_or_the_template_changes() -> None:
    rendering = tokens()
    first = rendering.render(SET, Prompt(0, None, text="one"))
    assert rendering.render(SET, Prompt(0, "label", text="one")) is first
    assert rendering.render(SET, Prompt(0, None, text="two")) is not first
    assert rendering.render(SetPlan("sums", "x", system="be brief"), Prompt(0, None, text="two")).text.startswith(
        "system"
    )


def test_templates_are_told_apart_by_a_digest() -> None:
    rendering = tokens()
    own, other = rendering.template_digest(SET), rendering.template_digest(SetPlan("s", "x", chat_template="{{ x }}"))
    assert own is not None
    assert own != other
    assert rendering.template_digest(SetPlan("s", "x", chat_template="none")) is None


def test_the_longest_text_is_that_of_the_config_or_of_the_tokenizer_if_it_is_less(tmp_path: Path) -> None:
    assert tokens().context_length() is None
    (tmp_path / "config.json").write_text('{"text_config": {"max_position_embeddings": 2048}}')
    assert tokens(str(tmp_path)).context_length() == 2048
    short = WordTokenizer()
    short.model_max_length = 512
    assert Tokens(short, str(tmp_path)).context_length() == 512


@pytest.mark.parametrize("name", ["/no/such/folder", "./no-such-folder", "nobody/no-such-model"])
def test_a_tokenizer_that_is_not_here_is_never_downloaded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    def refuse(*_: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    with pytest.raises(EvaluationError, match="--eval-tokenizer names"):
        Tokenizers().get(name)


def test_a_folder_without_tokenizer_files_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(EvaluationError, match="no tokenizer files; save the tokenizer with the model"):
        Tokenizers().get(str(tmp_path))


def test_a_missing_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fsrun.core.errors import UsageError

    (tmp_path / "tokenizer.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UsageError, match=r"needs transformers: pip install 'fsrun\[sglang\]'"):
        Tokenizers().get(str(tmp_path))


def test_what_is_kept_rendered_is_bounded_over_all_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT", len("user: hi\nassistant:") * 3)
    rendered = tokens()
    for _ in range(2):
        for name in ("a", "b"):
            for row in range(2):
                rendered.render(SetPlan(name, "x"), Prompt(row, None, text="hi"))
    assert rendered._tokenizer.rendered == 4 + 1
    # Another text in a row's place takes its room, not more.
    for text in ("ho", "hi", "ho"):
        rendered.render(SetPlan("a", "x"), Prompt(0, None, text=text))
    rendered.render(SetPlan("a", "x", system="be"), Prompt(0, None, text="hi"))
    assert rendered._held == sum(kept.held() for kept in rendered._kept.values())


class TaggedTokenizer(WordTokenizer):
    """Has tags of thinking among its special tokens."""

    all_special_tokens = ("<|end|>", "<think>", "</think>")


def test_special_tags_of_thinking_stay_in_an_answer_and_all_other_special_tokens_do_not() -> None:
    tagged = Tokens(TaggedTokenizer(), "/nowhere")
    assert tagged.hides_thinking
    assert tagged.answer_text("<think>a<|end|></think>42<|end|>") == "<think>a</think>42"
    assert not tokens().hides_thinking
    assert tokens().answer_text("42<|end|>") == "42<|end|>"


def test_thinking_that_a_last_message_of_the_assistant_began_is_known_to_be_open() -> None:
    def begun(content: str) -> bool:
        return tokens().render(SET, Prompt(0, None, messages=[*HI, {"role": "assistant", "content": content}])).thinking

    assert begun("<think>Let me see.")
    assert not begun("<think>Let me see.</think>So")
    assert not tokens().render(SET, Prompt(0, None, text="what is <think>?")).thinking
