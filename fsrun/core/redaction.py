"""Secrets taken out of what is recorded: configurations, environment variables, command lines, URLs, text.

Does: decides by the name a value goes by (``wandb_key``, ``OPENAI_API_KEY``, ``apiKey``, ``password``) and by its
shape (``ghp_...``, ``Bearer ...``, a URL with a password, a private key), and puts ``***`` in its place. Names are
read as words, and the last word counts: ``hf_token`` is a secret, ``max_new_tokens``, ``tokenizer_path`` and
``secret_santa_dataset`` are none. ``key`` and ``token`` are everyday words in training, so they count with the word
before them; ``None``, bools, empty text and numbers are never secrets (but a number as a password is one).

Limits: a secret under a name that says nothing (``--foo abc``, ``acme_key``) and of no known shape is kept, unless,
under a ``*_key``, it looks random. A raw ``/`` in the password of a URL ends the search for it. A value without
quotes in running text is taken to end at a blank. What looks too much like a secret is redacted although it is none.

Leaves to others: when to call it. Redacting twice changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

REDACTED = "***"

_DEPTH = 64
_NAME_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")
_TOKEN_LIKE = re.compile(r"[A-Za-z0-9._~+/=:@-]+")
_RANDOM_LIKE = re.compile(r"[A-Za-z0-9+/=_-]{20,}")
_CHANGES = re.compile(r"[A-Za-z][0-9]|[0-9][A-Za-z]")
# Nothing to hide, or hidden already.
_NOTHING = re.compile(r"\s*(?:none|null|true|false|\*{3,}\W*)?\s*", re.IGNORECASE)

# What a name can say of its value. SECRET: any text. PASSWORD: numbers too. TOKEN: text of letters and digits, not
# "</s>". RANDOM: only what looks random. PROXY: an address that may start with a user and a password. FOLDER: what
# may be the working folder ($PWD) as well as a password.
_SECRET, _PASSWORD, _TOKEN, _RANDOM, _PROXY, _FOLDER = "secret", "password", "token", "random", "proxy", "folder"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Ends of a name that say which of several it is, not what it is.
_ENDINGS = _words("value val str string text prod dev test staging old new backup default primary secondary ro rw b64")
_PASSWORDS = _words("password passwords passwd passwds passphrase passphrases passcode pwd pswd")
_SECRETS = _words("secret secrets credential credentials authorization cookie cookies bearer jwt")
# Before "key" or "token": kinds of secret, and services that hand them out.
_ISSUERS = _words(
    "api access secret private auth oauth account admin master app encryption decryption signing deploy "
    "license subscription ssh rsa gpg pgp hmac jwt fernet refresh bearer security webhook "
    "wandb biases hf huggingface hugging openai anthropic claude gemini google gcp azure aws minio cohere mistral "
    "groq together fireworks deepseek openrouter perplexity replicate nvidia ngc nim swanlab neptune clearml "
    "mlflow dagshub kaggle tavily serper serpapi serp bing jina pinecone weaviate qdrant langsmith langchain langfuse "
    "runpod vast datadog sentry grafana influx slack telegram discord twilio sendgrid github gitlab gh npm pypi "
    "docker elevenlabs stability deepgram voyage xai dashscope zhipu moonshot minimax volcengine aliyun oss bot"
)
# Before "token": the vocabulary of language models, where a token is a piece of text.
_VOCABULARY = _words(
    "pad eos bos unk mask cls sep sos sot eot eom eod boi eoi boa eoa bov eov bom image img video audio speech text "
    "stop start begin end ending special think thinking next first last per prefix suffix system assistant role "
    "chat tool function fim middle hole separator newline decoder register memory learnable soft prompt query class "
    "dist distill distillation patch action state time answer question response reward vision modality latent blank "
    "silence space byte word subword padding unknown placeholder reserved extra additional added trigger split "
    "delimiter boundary pause target source language lang task go cot step verify yes no good bad positive "
    "negative draft bonus each by max min num new"
)
_LOGINS = _words("db database smtp mail email redis mysql postgres root admin ftp sudo login http proxy user")

# Shapes that no ordinary value has. The lengths have an upper bound so that no text takes quadratic time.
_SHAPES = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"gh[pousr]_[A-Za-z0-9]{4,500}|github_pat_\w{8,500}|gl(?:pat|dt|rt)-[\w-]{10,500}"
    r"|hf_[A-Za-z0-9]{16,500}|api_org_[A-Za-z0-9]{16,500}"
    r"|sk-(?:(?:ant|proj|svcacct|admin|or|lf)-[\w-]{8,500}|[A-Za-z0-9]{16,500}[\w-]{0,500})"
    r"|[sr]k_(?:live|test)_[A-Za-z0-9]{10,500}|xox[abeoprs]-[\w-]{8,500}"
    r"|A(?:KI|SI)A[A-Z0-9]{16}|AIza[\w-]{30,500}|ya29\.[\w-]{20,500}"
    r"|npm_[A-Za-z0-9]{30,500}|pypi-AgE[\w-]{16,500}|dckr_pat_[\w-]{16,500}|dop_v1_[0-9a-f]{32,500}"
    r"|(?:gsk|r8)_[A-Za-z0-9]{20,500}|(?:xai|pplx|tvly|nvapi)-[\w-]{20,500}"
    r"|wandb_v1_\w{16,500}|lsv2_[a-z]{2}_\w{16,500}|hvs\.[\w-]{20,500}|SG\.[\w-]{16,500}\.[\w-]{16,500}"
    r"|AGE-SECRET-KEY-1[A-Z0-9]{20,500}|(?<![_-])eyJ[\w-]{8,4000}\.[\w-]{8,4000}\.[\w-]{0,4000}"
    r")"
)
_PEM = re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)", re.DOTALL)
_BEARER = re.compile(r"\bBearer[ \t]{1,4}[A-Za-z0-9._~+/=-]{6,}")
_USERINFO = re.compile(r"""([A-Za-z][A-Za-z0-9+.-]{0,30})://([^\s/?#"'<>]{1,2000})@(?!sha256:)""")
_SCHEMELESS = re.compile(r"(?<!\S)[^\s/@:]{0,200}:[^\s/@]{1,500}@")
_HOOKS = re.compile(
    r"(hooks\.slack\.com/services/|discord(?:app)?\.com/api/webhooks/|api\.telegram\.org/bot)[^\s\"'?#]{4,}"
)
_SIGNED = re.compile(r"([?&](?:sig|signature|x-(?:amz|goog)-(?:signature|credential))=)[^&\s\"'#]+", re.IGNORECASE)
_ASSIGNMENT = re.compile(
    r"(?<![\w.-])(?:"
    r"(?P<flag>--?[A-Za-z][\w.-]{0,99})[ \t]{1,4}(?=[^\s-])"
    r"|(?P<name>-{0,2}[A-Za-z_][\w.-]{0,99})(?P<sep>\\?[\"']?\]?[ \t]{0,4}(?:=>|:=|[=:])[ \t]{0,4}))"
)
_OPENING = re.compile(r"[bBuUrRfF]{0,2}(\\?[\"'])")
_UNQUOTED = re.compile(r"[^\s\"']*")
_PARAMETER = re.compile(r"[^\s\"'&#]*")
_SCHEME = re.compile(r"(?:[A-Za-z]{3,12}[ \t]+)?[^\s\"']+")
_ARGUMENT = re.compile(r"([^\s=]{1,200})=(.*)", re.DOTALL)
_CLOSING = {"[": "]", "(": ")", "{": "}"}


def redact(value: object, key: str = "") -> object:
    """A copy of JSON-like ``value`` (text, numbers, lists, dicts with text keys) without its secrets.

    ``key`` is the name that ``value`` goes by, with or without the names it is nested in (``wandb.key``). Under a
    secret name all text inside goes. A list is also read as a command line and a pair as name and value, a dict with
    ``name`` and ``value`` likewise. Other types come back as they are; below 64 levels ``***`` stands for the rest.
    """
    return _walk(value, key, "", 0)


def redact_text(text: str) -> str:
    """``text`` without the secrets in it: known shapes, passwords of URLs, ``name=secret``, ``--name secret``."""
    text = _PEM.sub(REDACTED, text)
    text = _SHAPES.sub(REDACTED, text)
    text = _BEARER.sub(f"Bearer {REDACTED}", text)
    text = _USERINFO.sub(_without_password, text)
    text = _HOOKS.sub(rf"\1{REDACTED}", text)
    text = _SIGNED.sub(rf"\1{REDACTED}", text)
    return _redact_assignments(text)


def redact_argv(argv: Sequence[str]) -> list[str]:
    """The arguments of a command line without their secrets, one for one (``--key x``, ``--key=x``, ``a.key=x``)."""
    redacted: list[str] = []
    waiting, many = "", False
    for argument in argv:
        text = str(argument)
        if waiting and not text.startswith("-"):
            redacted.append(_redact_leaf(waiting, text))
            waiting = waiting if many else ""
            continue
        waiting, many = "", False
        given = _ARGUMENT.fullmatch(text)
        if given:
            verdict = _judge(given.group(1))
            text = f"{given.group(1)}={_redact_leaf(verdict, given.group(2))}" if verdict else text
        elif text.startswith("-"):
            waiting, many = _judge(text), text.endswith("s")
        redacted.append(redact_text(text))
    return redacted


def _walk(value: object, name: str, inherited: str, depth: int) -> object:
    verdict = inherited or _judge(name)
    if isinstance(value, str):
        return _redact_leaf(verdict, value)
    if isinstance(value, (int, float)):
        return REDACTED if verdict == _PASSWORD and not isinstance(value, bool) else value
    if not isinstance(value, (dict, list, tuple)):
        return value
    if depth == _DEPTH:
        return REDACTED
    # "token" and "key" are weak words: what is nested under them has names of its own.
    passed = verdict if verdict in (_SECRET, _PASSWORD) else ""
    if not isinstance(value, dict):
        items = []
        before = ""
        for item in value:
            said = _judge(before) if before.startswith("-") or (before and len(value) == 2) else ""
            if said and isinstance(item, str) and item.startswith("-"):
                said = ""
            items.append(_walk(item, name, passed or said, depth + 1))
            before = item if isinstance(item, str) else ""
        return items
    titles = [title for title in (value.get("name"), value.get("key")) if isinstance(title, str)]
    result: dict[str, object] = {}
    for key, inner in value.items():
        inner_name = titles[0] if key == "value" and titles else f"{name.rpartition('.')[2]}.{key}"
        clean = redact_text(str(key))
        while clean in result:
            clean += "'"
        result[clean] = _walk(inner, inner_name, passed, depth + 1)
    return result


def _judge(name: str) -> str:
    """What ``name`` says of its value: one of the verdicts above, or "" where it says nothing."""
    words = [word.lower() for word in _NAME_WORDS.findall(name[-200:])]
    while len(words) > 1 and (words[-1].isdigit() or words[-1] in _ENDINGS):
        words.pop()
    if not words:
        return ""
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if words == ["pwd"]:
        return _FOLDER
    if last in _PASSWORDS or last.endswith(("password", "passwd")):
        return _PASSWORD
    if last in _SECRETS or (last == "pat" and before in _ISSUERS) or (last == "auth" and before in _LOGINS):
        return _SECRET
    if last == "pass":
        return _PASSWORD if before in _LOGINS else ""
    if last == "proxy":
        return _PROXY
    for kind in ("key", "token", "secret"):  # written as one word, as in "apikey"
        if last.removesuffix("s").endswith(kind) and last.removesuffix("s").removesuffix(kind) in _ISSUERS:
            return _SECRET
    if last in ("key", "keys", "token", "tokens") and before in _ISSUERS:
        return _SECRET
    if last == "token":
        return _RANDOM if before in _VOCABULARY else _TOKEN
    return _RANDOM if last in ("key", "keys") else ""


def _redact_leaf(verdict: str, text: str) -> str:
    if _is_secret(verdict, text):
        return REDACTED
    text = redact_text(text)
    return _SCHEMELESS.sub(f"{REDACTED}@", text) if verdict == _PROXY else text


def _is_secret(verdict: str, text: str) -> bool:
    if _NOTHING.fullmatch(text):
        return False
    if verdict in (_SECRET, _PASSWORD) or (verdict == _FOLDER and not text.startswith("/")):
        return True
    if verdict == _TOKEN:
        return _TOKEN_LIKE.fullmatch(text) is not None and _NUMBER.fullmatch(text) is None
    return verdict == _RANDOM and _RANDOM_LIKE.fullmatch(text) is not None and len(_CHANGES.findall(text)) > 3


def _without_password(found: re.Match[str]) -> str:
    scheme, userinfo = found.group(1), found.group(2)
    user, colon, password = userinfo.partition(":")
    if not colon:
        token = scheme.lower() in ("http", "https") and user != "git"
        return f"{scheme}://{REDACTED if token else user}@"
    # A token may stand where the user's name does.
    if password in ("", "x-oauth-basic") or len(user) > 20:
        user = REDACTED
    return f"{scheme}://{user}:{REDACTED}@"


def _redact_assignments(text: str) -> str:
    parts: list[str] = []
    done = at = 0
    while found := _ASSIGNMENT.search(text, at):
        at = found.end()
        name = found["flag"] or found["name"]
        verdict = _judge(name)
        if not verdict:
            continue
        start, end = _value_span(text, found, verdict)
        value = text[start:end]
        if verdict == _TOKEN and ":" in (found["sep"] or "") and len(value) < 16 and not any(map(str.isdigit, value)):
            continue  # a sentence about tokens
        if verdict == _PROXY or _is_secret(verdict, value):
            parts += (text[done:start], _redact_leaf(verdict, value))
            done = at = end
    return "".join((*parts, text[done:])) if parts else text


def _value_span(text: str, found: re.Match[str], verdict: str) -> tuple[int, int]:
    """Where the value of an assignment starts and ends, without its quotes."""
    start = found.end()
    opening = _OPENING.match(text, start)
    if opening:
        quote = opening.group(1)
        end = text.find(quote, opening.end())
        while end > 0 and len(quote) == 1 and text[end - 1] == "\\":
            end = text.find(quote, end + 1)
        return opening.end(), _end_of_line(text, start) if end < 0 else end
    if text[start : start + 1] in _CLOSING:
        end = text.find(_CLOSING[text[start]], start)
        return start, _end_of_line(text, start) if end < 0 else end + 1
    if verdict == _SECRET and "auth" in (found["name"] or "").lower():
        value = _SCHEME.match(text, start)
        return start, value.end() if value else start
    in_query = found.start() > 0 and text[found.start() - 1] in "?&"
    return start, (_PARAMETER if in_query else _UNQUOTED).match(text, start).end()  # type: ignore[union-attr]


def _end_of_line(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else end
