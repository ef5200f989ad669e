"""Any configuration is plain, bounded JSON (fsrun/core/config.py)."""

from __future__ import annotations

import argparse
import array
import json
import math
import pathlib
import types
import uuid
from collections import OrderedDict, UserDict, defaultdict, deque, namedtuple
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fsrun.core import config as module
from fsrun.core.config import MAX_BYTES, MAX_DEPTH, MAX_ITEMS, MAX_TEXT, MAX_WIDTH, encode_config

pytestmark = pytest.mark.unit


class Precision(Enum):
    BF16 = "bf16"
    AUTO = 1


class Rank(IntEnum):
    FIRST = 1


class Name(str):
    """A text of another type."""


@dataclass
class Optimizer:
    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.95)
    inner: dict[str, object] = field(default_factory=dict)


class Plain:
    width = 64
    activation = len

    def __init__(self) -> None:
        self.depth = 2
        self.loss = len
        self._private = 1

    def method(self) -> None: ...

    @property
    def computed(self) -> int:
        raise RuntimeError


class Slotted:
    __slots__ = ("a", "unset")

    def __init__(self) -> None:
        self.a = 1


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError

    __str__ = __repr__


class BrokenDict(dict[str, object]):
    def keys(self) -> Any:
        raise RuntimeError


class BrokenIteration(UserDict[str, object]):
    def __iter__(self) -> Iterator[str]:
        yield "a"
        raise RuntimeError


class Interpolated(UserDict[str, object]):
    """As OmegaConf: reading some keys fails."""

    def __getitem__(self, key: str) -> object:
        if key == "missing":
            raise LookupError
        return super().__getitem__(key)


class Flags:
    def flag_values_dict(self) -> dict[str, object]:
        return {"lr": 0.1}

    def __repr__(self) -> str:
        return "flags"


class NoDict:
    def to_dict(self) -> int:
        return 3

    def __repr__(self) -> str:
        return "<NoDict object at 0x7f00>"


class Attrs:
    __attrs_attrs__ = (types.SimpleNamespace(name="a"),)
    a = 1


class KeysAndItems:
    """As ml_collections: a mapping that is none by its bases."""

    def keys(self) -> list[str]:
        return ["shape", "dtype"]

    def items(self) -> list[tuple[str, int]]:
        return [("shape", 1), ("dtype", 1)]

    def __getitem__(self, key: str) -> int:
        return 1


Pair = namedtuple("Pair", "left right")


def of(value: object) -> object:
    return encode_config({"x": value})["x"]


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (None, None),
        (True, True),
        (3, 3),
        (1.5, 1.5),
        (math.nan, "NaN"),
        (-math.inf, "-Infinity"),
        (2**62, 2**62),
        (2**63, "9223372036854775808"),
        (10**5000, "[an integer of 16610 bits]"),
        (Decimal("0.1"), 0.1),
        (Fraction(1, 4), 0.25),
        (1 + 2j, "(1+2j)"),
        ("text", "text"),
        (Name("text"), "text"),
        ("\ud800", "\\ud800"),
        (b"\xff", "b'\\xff'"),
        (b"x" * 5000, "[bytes of 5000 bytes]"),
        (pathlib.PurePosixPath("/a/b"), "/a/b"),
        (Precision.BF16, "bf16"),
        (Precision.AUTO, "Precision.AUTO"),
        (Rank.FIRST, "Rank.FIRST"),
        (date(2025, 1, 2), "2025-01-02"),
        (uuid.UUID(int=1), "UUID('00000000-0000-0000-0000-000000000001')"),
        (range(10**9), "range(0, 1000000000)"),
        ((1, 2), [1, 2]),
        (deque([1]), [1]),
        ({"b", "a", 3}, [3, "a", "b"]),
        (frozenset(), []),
        ({"k": 1}.keys(), ["k"]),
        (array.array("i", [1, 2]), [1, 2]),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (defaultdict(list, a=[1]), {"a": [1]}),
        (Optimizer(inner={"n": 1}), {"lr": 0.001, "betas": [0.9, 0.95], "inner": {"n": 1}}),
        (Pair(1, 2), {"left": 1, "right": 2}),
        (argparse.Namespace(a=1), {"a": 1}),
        (types.SimpleNamespace(a=1), {"a": 1}),
        (Attrs(), {"a": 1}),
        (Flags(), {"lr": 0.1}),
        (KeysAndItems(), {"shape": 1, "dtype": 1}),
        (NoDict(), "<NoDict object>"),
        (object(), "<object object>"),
        (Slotted(), {"a": 1, "unset": "[unreadable: AttributeError]"}),
        (Plain(), {"width": 64, "depth": 2, "loss": "len"}),
        (partial(sorted, [2], reverse=True), {"function": "sorted", "args": [[2]], "keywords": {"reverse": True}}),
        (math, "module math"),
        (int, "int"),
        (len, "len"),
        (Optimizer, f"{__name__}.Optimizer"),
        (Plain.method, f"{__name__}.Plain.method"),
        (Broken(), "[unreadable: RuntimeError]"),
        (BrokenDict(a=1), "[unreadable: RuntimeError]"),
        (BrokenIteration(a=1), {"a": 1, "...": "[unreadable: RuntimeError]"}),
        (Interpolated(missing=1, b=2), {"missing": "[unreadable: LookupError]", "b": 2}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_becomes_the_json_that_says_most(value: object, plain: object) -> None:
    assert of(value) == plain


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (np.float32(1.5), 1.5),
        (np.float64("nan"), "NaN"),
        (np.int64(3), 3),
        (np.uint64(2**64 - 1), 1.8446744073709552e19),
        (np.bool_(True), 1),
        (np.array(2.5), 2.5),
        (np.datetime64("2025-01-02"), "2025-01-02"),
        (np.array("x"), "x"),
        (np.arange(4).reshape(2, 2), [[0, 1], [2, 3]]),
        (np.zeros((100, 2)), "[ndarray, shape (100, 2), float64]"),
        (np.dtype("float32"), "dtype('float32')"),
        (np.float32, "numpy.float32"),
        (ml_dtypes.bfloat16(2), 2.0),
        (torch.tensor(1.5, dtype=torch.bfloat16, requires_grad=True), 1.5),
        (torch.ones(2), [1.0, 1.0]),
        (torch.zeros(1000), "[Tensor, shape (1000,), torch.float32]"),
        (torch.bfloat16, "torch.bfloat16"),
        (torch.device("cpu"), "device(type='cpu')"),
        (pd.DataFrame({"a": [1]}), "[DataFrame, shape (1, 1)]"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_arrays_and_their_types_are_read_without_their_libraries(value: object, plain: object) -> None:
    assert of(value) == plain


def test_keys_that_are_no_text_never_merge_with_those_that_are() -> None:
    encoded = encode_config({1: "a", "1": "b", None: "c", (1, 2): "d", Precision.BF16: "e", 2.5: "f", "1 (int)": "g"})
    assert encoded == {"1 (int 1)": "a", "1": "b", "None": "c", "(1, 2)": "d", "bf16": "e", "2.5": "f", "1 (int)": "g"}


def test_keys_that_cannot_be_written_are_spelled_out_cut_or_marked() -> None:
    encoded = encode_config({"\ud800": 1, "\\ud800": 2, "k" * 300: 3, "k" * 301: 4, Broken(): 5, Name("n"): 6})
    assert list(encoded.values()) == [1, 2, 3, 4, 5, 6]
    assert list(encoded)[:2] == ["\\ud800 (str)", "\\ud800"]
    assert max(map(len, encoded)) < 300
    assert "[unreadable]" in encoded


def test_what_is_passed_as_a_whole_becomes_a_dict() -> None:
    assert encode_config(None) == {}
    assert encode_config(5) == {"config": 5}
    assert encode_config([1]) == {"config": [1]}
    assert encode_config(Precision.AUTO) == {"config": "Precision.AUTO"}
    assert encode_config(argparse.Namespace(a=1, api_key="x")) == {"a": 1, "api_key": "***"}
    assert encode_config(Plain) == {"width": 64}
    assert encode_config(Broken()) == {"config": "[unreadable: RuntimeError]"}
    assert encode_config(BrokenDict()) == {"config": "[unreadable: RuntimeError]"}
    assert encode_config(object()) == {"config": "<object object>"}
    assert encode_config(torch.ones(2)) == {"config": [1.0, 1.0]}
    assert encode_config(len) == {"config": "len"}


def test_a_module_of_settings_gives_its_settings() -> None:
    settings = types.ModuleType("settings")
    settings.__dict__.update(lr=0.1, np=np, main=len, _hidden=1, name="a")
    assert encode_config(settings) == {"lr": 0.1, "name": "a"}


class WithRepr(Plain):
    def __repr__(self) -> str:
        return "WithRepr()"


def test_an_object_with_a_text_of_its_own_is_opened_at_the_top_alone() -> None:
    assert encode_config(WithRepr()) == {"width": 64, "depth": 2, "loss": "len"}
    assert of(WithRepr()) == "WithRepr()"


def test_an_iterator_is_not_consumed() -> None:
    numbers = iter([1, 2])
    generator = (n for n in [1, 2])
    assert of([numbers, generator]) is not None
    assert next(numbers) == next(generator) == 1


def test_a_cycle_is_marked_and_what_only_occurs_twice_is_not() -> None:
    shared = {"n": 1}
    loop: dict[str, object] = {"a": shared, "b": shared}
    loop["me"] = [loop]
    mark = "[cycle: one of the containers around it]"
    assert encode_config(loop) == {"a": {"n": 1}, "b": {"n": 1}, "me": [mark]}


def test_what_is_too_deep_is_marked() -> None:
    deep: object = 1
    for _ in range(5000):
        deep = {"x": deep}
    assert json.dumps(encode_config(deep)).count("[cut: deeper than 20 levels]") == 1


def test_what_is_too_wide_is_cut_and_says_by_how_much() -> None:
    assert of(list(range(MAX_WIDTH + 5)))[MAX_WIDTH:] == ["[cut: 5 more]"]  # type: ignore[index]
    wide = encode_config({str(n): n for n in range(MAX_WIDTH + 5)} | {"...": 1})
    assert wide["..."] == "[cut: 6 more]"
    assert of({str(n) for n in range(MAX_WIDTH + 5)})[MAX_WIDTH:] == ["[cut: 5 more]"]  # type: ignore[index]
    assert (
        list(encode_config(argparse.Namespace(**{f"a{n}": n for n in range(1001)})).values())[-1] == "[cut: some more]"
    )


def test_a_mark_does_not_replace_a_setting_of_the_same_name() -> None:
    wide = encode_config({"...": 1} | {str(n): n for n in range(MAX_WIDTH)})
    assert wide["..."] == 1
    assert wide["... (str)"] == "[cut: 1 more]"


def test_a_long_text_is_cut_and_says_how_long_it_was() -> None:
    text = of("a" * 10_000)
    assert text == "a" * MAX_TEXT + " [cut: 10000 characters]"


def test_very_many_values_are_cut_where_the_room_ends() -> None:
    encoded = json.dumps(encode_config({str(i): {str(j): j for j in range(900)} for i in range(900)}))
    assert encoded.count(",") < MAX_ITEMS
    assert "[cut: " in encoded
    assert json.dumps(of([[[] for _ in range(900)] for _ in range(900)])).count("[") < MAX_ITEMS + 100


def test_very_much_text_is_cut_where_the_room_ends() -> None:
    encoded = json.dumps(encode_config({str(i): "\U0001f600" * 5000 for i in range(900)}))
    assert len(encoded) <= MAX_BYTES + 4096
    assert "[cut: " in encoded


def test_a_secret_that_the_cut_would_halve_is_gone() -> None:
    text = "a" * (MAX_TEXT - 12) + " https://u:sekret-of-some-length@host/x"
    assert "sekret" not in str(of(text))


def test_secrets_are_taken_out_unless_they_are_asked_for() -> None:
    config = {
        "wandb_key": "sekret",
        "settings": WithSecret(),
        "path": pathlib.PurePosixPath("/x"),
        "ghp_" + "a1" * 18: 1,
        "trackers": [{"uri": "https://user:pw@host/x"}],
        "argv": ["--wandb-key", "sekret"],
    }
    assert "sekret" not in json.dumps(encode_config(config))
    assert encode_config(config)["trackers"] == [{"uri": "https://user:***@host/x"}]
    assert "***" in encode_config(config)
    assert encode_config(config, secrets=False)["wandb_key"] == "sekret"
    assert encode_config(config, secrets=False)["trackers"] == [{"uri": "https://user:pw@host/x"}]


class WithSecret:
    def __repr__(self) -> str:
        return "WithSecret(api_key='sekret', n=1)"


def test_ordinary_settings_are_kept_as_they_are() -> None:
    config = {
        "use_cls_token": True,
        "num_memory_tokens": 4,
        "max_new_tokens": 512,
        "eos_token_id": 2,
        "eos_token": "</s>",
        "tokenizer_path": "meta/llama",
        "key_dim": 64,
        "num_key_value_heads": 8,
        "pass_at_k": [1, 8],
        "secret_santa_dataset": "santa/v1",
    }
    assert encode_config(config) == config


def test_what_other_modules_import_from_here_is_here() -> None:
    assert {"encode_config", "redact", "redact_text", "redact_argv"} <= set(module.__all__)


class Hashless:
    def __hash__(self) -> int:
        return 1

    def __repr__(self) -> str:
        raise ValueError


def test_a_set_of_things_without_text_is_kept() -> None:
    assert of({Hashless()}) == ["[unreadable: ValueError]"]


LEAVES: st.SearchStrategy[object] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(alphabet=st.characters(codec=None)),
    st.binary(),
    st.decimals(),
    st.builds(Broken),
    st.builds(BrokenDict, a=st.integers()),
    st.sampled_from([Plain(), len, Precision.AUTO, np.float32(1), torch.ones(2), object()]),
)
KEYS = (
    st.text(alphabet=st.characters(codec=None)) | st.integers() | st.booleans() | st.none() | st.tuples(st.integers())
)
CONFIGS = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.builds(types.SimpleNamespace, a=inner)
        | st.builds(Optimizer, inner=inner)
    ),
    max_leaves=20,
)


@pytest.mark.property
@given(CONFIGS, st.booleans())
def test_any_configuration_is_plain_bounded_json(config: object, secrets: bool) -> None:
    encoded = encode_config(config, secrets=secrets)
    text = json.dumps(encoded, allow_nan=False, ensure_ascii=False)
    text.encode("utf-8")
    assert json.loads(text) == encoded
    assert len(json.dumps(encoded)) <= MAX_BYTES + 4096
    assert depth_of(encoded) <= MAX_DEPTH + 2


@pytest.mark.property
@given(st.dictionaries(KEYS, st.integers(), max_size=20))
def test_no_two_keys_merge(config: dict[object, int]) -> None:
    assert list(encode_config(config, secrets=False).values()) == [of_int(value) for value in config.values()]


def of_int(value: int) -> object:
    return value if -(2**63) <= value < 2**63 else str(value)


def depth_of(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth_of, inner), default=0)
