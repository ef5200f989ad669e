"""Secrets go, ordinary settings stay (fsrun/core/redaction.py)."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsrun.core.redaction import REDACTED, redact, redact_argv, redact_text

pytestmark = pytest.mark.unit

# Put together here, so that no scanner of repositories takes this file for a leak.
GITHUB = "ghp_" + "a1B2" * 9
HUB = "hf_" + "aBcD" * 9
OPENAI = "sk-" + "proj-" + "a1B2" * 9
AWS = "AKIA" + "ABCD" * 4
PEM = "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    "key",
    [
        "wandb_key",
        "hf_token",
        "api_key",
        "apiKey",
        "apikey",
        "API-KEY",
        "x-api-key",
        "OPENAI_API_KEY",
        "WANDB_API_KEY_2",
        "password",
        "db_password",
        "dbpassword",
        "db_pass",
        "passphrase",
        "client_secret",
        "clientSecret",
        "aws_secret_access_key",
        "AWS_SESSION_TOKEN",
        "HFToken",
        "hftoken",
        "token",
        "my_corp_token",
        "slack_tokens",
        "github_pat",
        "http_auth",
        "Authorization",
        "private_key",
        "credentials",
        "cookie",
        "wandb.key",
        "password.value",
        "--wandb-key",
    ],
)
def test_a_secret_name_hides_its_text(key: str) -> None:
    assert redact("word/x", key) == REDACTED


@pytest.mark.parametrize(
    "key",
    [
        "use_cls_token",
        "num_memory_tokens",
        "max_new_tokens",
        "eos_token_id",
        "pad_token",
        "tokenizer_path",
        "key_dim",
        "num_key_value_heads",
        "pass_at_k",
        "pass_at_1",
        "secret_santa_dataset",
        "token_budget",
        "key",
        "keys",
        "keys_to_ignore",
        "monkey",
        "input_key",
        "label-key",
        "sort_key",
        "tokens",
        "stop_tokens",
        "image_token",
        "forward_pass",
        "api_key_file",
        "token_type",
        "password_length",
        "author",
        "auth_type",
        "patience",
        "",
        "123",
        "损失",
    ],
)
def test_an_ordinary_name_keeps_its_text(key: str) -> None:
    assert redact("word/x", key) == "word/x"


@pytest.mark.parametrize("value", ["", "None", "null", "false", None, True, False, 12, 1.5, REDACTED, "**********"])
def test_nothing_to_hide_stays_under_a_secret_name(value: object) -> None:
    assert redact(value, "api_key") == value


def test_a_number_is_a_secret_as_a_password_alone() -> None:
    assert redact({"password": 12345, "use_password": True, "token": 5, "api_key": 7}) == {
        "password": REDACTED,
        "use_password": True,
        "token": 5,
        "api_key": 7,
    }


@pytest.mark.parametrize(
    ("key", "value", "kept"),
    [
        ("PWD", "/home/me", True),
        ("pwd", "sekret", False),
        ("multi_modal_keys", "image", True),
        ("comet_key", "comet/score", True),
        ("token", "</s>", True),
        ("token", "<|im_end|>", True),
        ("token", "12", True),
        ("token", "abc123", False),
        ("eos_token", "STOP", True),
        ("class_token", "a1b2c3d4" * 5, False),
        ("acme_key", "sekret", True),
        ("acme_key", "a1b2c3d4" * 5, False),
        ("cache_key", "model.layers.0.self_attn.q_proj", True),
        ("image_token", HUB, False),
    ],
)
def test_a_weak_name_counts_with_what_its_value_looks_like(key: str, value: str, kept: bool) -> None:
    assert redact(value, key) == (value if kept else REDACTED)


@pytest.mark.parametrize("secret", [GITHUB, HUB, OPENAI, AWS, PEM], ids=lambda secret: secret[:3])
def test_a_secret_shape_goes_wherever_it_stands(secret: str) -> None:
    assert redact_text(f"see {secret} here") == f"see {REDACTED} here"
    assert redact({"note": [secret], secret: 1}) == {"note": [REDACTED], REDACTED: 1}


def test_a_private_key_that_was_cut_goes_to_its_end() -> None:
    assert redact_text(PEM[:40]) == REDACTED


@pytest.mark.parametrize(
    "text",
    [
        "hf_transfer and hf_hub_download",
        "sk-learn-logistic-regression-v1",
        "task-0123456789abcdef0123",
        "val/reward@8 max:mean@1",
        "git@github.com:o/r.git",
        "ssh://git@github.com/o/r",
        "https://git@github.com/o/r",
        "https://h:8080/a@b?c=d@e",
        "docker://ubuntu:22.04@sha256:0123",
        "postgresql://me@host/db",
        "the next token: the cat, at 12:30",
        "token count: 5, tokens: many",
        "eos_token=</s> --max-new-tokens 5 --eos-token X",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert redact_text(text) == text


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("https://user:pw@host/x", "https://user:***@host/x"),
        ("https://x:ghp_sekret5@github.com/o/r", "https://x:***@github.com/o/r"),
        (f"https://{GITHUB}@github.com/o", "https://***@github.com/o"),
        ("https://sekret@github.com/o", "https://***@github.com/o"),
        ("https://sekret:x-oauth-basic@github.com", "https://***:***@github.com"),
        ("https://u:p@ss@host", "https://u:***@host"),
        ("redis://:pw@host:6379/0", "redis://:***@host:6379/0"),
        ("http_proxy=http://u:sekret4@h:1", "http_proxy=http://u:***@h:1"),
        ("http_proxy=u:sekret4@h:1", "http_proxy=***@h:1"),
        ("https://hooks.slack.com/services/T0/B0/abc", "https://hooks.slack.com/services/***"),
        ("https://h/x?token=abc1&n=3#f", "https://h/x?token=***&n=3#f"),
        ("https://h/x?n=3&sig=zz%3d&m=1", "https://h/x?n=3&sig=***&m=1"),
        ("Authorization: Bearer sekret6", "Authorization: ***"),
        ("-H 'Authorization: Basic c2VrcmV0' https://h", "-H 'Authorization: ***' https://h"),
        ("Authorization: ", "Authorization: "),
        ("got Bearer sekret6 back", "got Bearer *** back"),
        (
            "OPENAI_API_KEY=sekret3 python t.py --wandb-key s1 --n 3",
            "OPENAI_API_KEY=*** python t.py --wandb-key *** --n 3",
        ),
        ("Settings(api_key='x y', n=1, keys=['a'])", "Settings(api_key='***', n=1, keys=['a'])"),
        ("S(api_key=b'x', n=1)", "S(api_key=b'***', n=1)"),
        ("S(api_keys=['a', 'b'], n=1)", "S(api_keys=***, n=1)"),
        ("S(api_keys=['a', 'b'\nn=1", "S(api_keys=***\nn=1"),
        ('{"api_key": "a\\"b", "n": 1}', '{"api_key": "***", "n": 1}'),
        ('{\\"api_key\\": \\"x\\"}', '{\\"api_key\\": \\"***\\"}'),
        ('password: "never closed\nn: 1', 'password: "***\nn: 1'),
        ('os.environ["API_KEY"] = "x"', 'os.environ["API_KEY"] = "***"'),
        ("the token: abc123", "the token: ***"),
        ("AccountName=a;AccountKey=abc==", "AccountName=a;AccountKey=***"),
    ],
)
def test_a_secret_inside_text_goes_and_the_rest_stays(text: str, clean: str) -> None:
    assert redact_text(text) == clean


def test_a_command_line_keeps_its_arguments_but_for_the_secrets() -> None:
    argv = ["train.py", "--wandb-key", "sekret1", "--hf-token=hf_sekret2", "--input-key", "prompt", "+a.api_key=s e"]
    argv += ["--api-keys", "a", "b", "--eos-token", "</s>", "--max-new-tokens", "5", "API_KEY=x", "--wandb-key", "--n"]
    assert redact_argv(argv) == [
        *["train.py", "--wandb-key", "***", "--hf-token=***", "--input-key", "prompt", "+a.api_key=***"],
        *[
            "--api-keys",
            "***",
            "***",
            "--eos-token",
            "</s>",
            "--max-new-tokens",
            "5",
            "API_KEY=***",
            "--wandb-key",
            "--n",
        ],
    ]


def test_a_command_line_inside_an_argument_is_cleaned_too() -> None:
    assert redact_argv(["sh", "-c", "cd x; A_PASSWORD=x run", "--env=A=1,OPENAI_API_KEY=x", '{"api_key": "x"}']) == [
        *["sh", "-c", "cd x; A_PASSWORD=*** run", "--env=A=1,OPENAI_API_KEY=***", '{"api_key": "***"}']
    ]


def test_nested_settings_keep_their_shape() -> None:
    config = {
        "trackers": [{"uri": "https://user:pw@host/x", "wandb": {"key": "s"}, "token": {"type": "bpe"}}],
        "env": [{"name": "OPENAI_API_KEY", "value": "x"}, {"name": "LEVEL", "value": "x"}],
        "pairs": [("api_key", "x"), ["n", "x"]],
        "args": ["--wandb-key", "x", "--wandb-key", "--fast", "--n", "3"],
        "credentials": {"a": ["x", {"b": "y"}], "n": 1},
        "other": (1, None, object),
    }
    assert redact(config) == {
        "trackers": [{"uri": "https://user:***@host/x", "wandb": {"key": "***"}, "token": {"type": "bpe"}}],
        "env": [{"name": "OPENAI_API_KEY", "value": "***"}, {"name": "LEVEL", "value": "x"}],
        "pairs": [["api_key", "***"], ["n", "x"]],
        "args": ["--wandb-key", "***", "--wandb-key", "--fast", "--n", "3"],
        "credentials": {"a": ["***", {"b": "***"}], "n": 1},
        "other": [1, None, object],
    }


def test_two_keys_that_are_secrets_stay_two() -> None:
    assert redact({GITHUB: 1, HUB: 2}) == {"***": 1, "***'": 2}


def test_nesting_without_end_is_cut() -> None:
    deep: list[object] = []
    deep.append(deep)
    assert REDACTED in repr(redact(deep))


PIECES = ["api_key", "token", "=", ": ", " ", "--", "'", '"', "[", "]", "&", "?", "://", "u:p@h", "\\", "***", "abc1"]
PIECES += ["\n", GITHUB, "Bearer ", "Authorization", "password", "proxy"]
TEXTS = st.text(max_size=60) | st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


@pytest.mark.property
@given(TEXTS)
def test_redacting_twice_changes_nothing(text: str) -> None:
    once = redact_text(text)
    assert redact_text(once) == once


@pytest.mark.property
@given(st.from_regex(r"[a-z0-9]{6,20}", fullmatch=True))
def test_no_secret_survives_in_any_of_the_usual_places(secret: str) -> None:
    secret = f"sekret{secret}"
    argv = ["train.py", "--wandb-key", secret, f"--hf-token={secret}", f"https://u:{secret}@h/x"]
    config = {"wandb_key": secret, "nested": [{"openai": {"api_key": secret}}], "cmd": f"x --api-key '{secret}' -n 1"}
    assert secret not in repr((redact_argv(argv), redact(config), redact_text(f"Authorization: Bearer {secret}")))


@pytest.mark.parametrize(
    "piece",
    [
        "eyJ-",
        "a",
        "a-",
        "--a ",
        "https://",
        "x:",
        "sk-",
        "api_key=",
        'api_key="',
        "api_key=[",
        "Bearer ",
        "a:b@",
        PEM[:31],
    ],
)
def test_no_text_takes_more_than_linear_time(piece: str) -> None:
    text = piece * (100_000 // len(piece))
    start = time.process_time()
    redact_text(text)
    assert time.process_time() - start < 5  # some 0.1 s; a search that starts over at each piece takes minutes
