"""A trainer's flags, and engine settings of open names."""

import argparse
from typing import Any

import pytest

import fsrun
from fsrun.adapters.flags import add_eval_args, command_line, engine_settings, recorded, take


def parser(*positionals: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser()
    made.add_argument("--lr", type=float, default=0.1)
    for name in positionals:
        made.add_argument(name)
    return add_eval_args(made)


def test_without_flags_nothing_is_evaluated_and_both_ends_would_be() -> None:
    args = parser().parse_args([])
    assert (args.eval_interval, args.eval_first, args.eval_last, args.eval_queue, args.eval_hf_dir) == (
        None, True, True, None, None,
    )  # fmt: skip


def test_the_flags_are_read() -> None:
    args = parser().parse_args(
        [
            "--eval-interval",
            "10",
            "--no-eval-first",
            "--no-eval-last",
            "--eval-queue",
            "q",
            "--eval-hf-dir",
            "/shm",
        ]
    )
    assert (args.eval_interval, args.eval_first, args.eval_last) == (10, False, False)
    assert (args.eval_queue, args.eval_hf_dir) == ("q", "/shm")


def test_an_interval_below_one_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["--eval-interval", "0"])
    assert "leave it out where nothing is evaluated" in capsys.readouterr().err


def test_any_engine_setting_becomes_a_part_of_the_config() -> None:
    args = parser().parse_args(
        ["--sglang-mem-fraction-static", "0.7", "--lr", "1", "--sglang-disable-radix-cache", "--sglang-cuda-graph-bs",
         "1", "2", "4", "--sglang-x=-1", "--sglang-watchdog-timeout", "-1"]
    )  # fmt: skip
    assert {name: value for name, value in vars(args).items() if name.startswith("sglang_")} == {
        "sglang_mem_fraction_static": "0.7",
        "sglang_disable_radix_cache": True,
        "sglang_cuda_graph_bs": ["1", "2", "4"],
        "sglang_x": "-1",
        "sglang_watchdog_timeout": "-1",
    }
    assert args.lr == 1.0


def test_a_program_with_positional_arguments_gives_a_setting_one_value() -> None:
    args = parser("model").parse_args(["--sglang-dtype", "bfloat16", "llama"])
    assert (args.sglang_dtype, args.model) == ("bfloat16", "llama")


def test_what_the_program_knows_itself_is_left_to_it() -> None:
    made = parser()
    made.add_argument("--sglang-tp-size", type=int)
    args = made.parse_args(["--sglang-tp-size", "2"])
    assert args.sglang_tp_size == 2


def test_a_sub_command_has_the_flags_of_its_own_parser() -> None:
    made = argparse.ArgumentParser()
    add_eval_args(made.add_subparsers(dest="what").add_parser("train"))
    args = made.parse_args(["train", "--eval-interval", "5", "--sglang-dtype", "auto"])
    assert (args.what, args.eval_interval, args.sglang_dtype) == ("train", 5, "auto")


def test_an_unknown_flag_is_still_an_error() -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["--sglan-x", "1"])
    assert parser().parse_known_args(["--other"])[1] == ["--other"]


def test_it_is_part_of_the_library() -> None:
    assert fsrun.add_eval_args is add_eval_args
    assert fsrun.is_due(10, 5)


def test_settings_are_taken_out_of_a_command_line_up_to_two_dashes() -> None:
    rest, found = take(["big", "--eval-sglang-a", "1", "--b", "--", "--eval-sglang-c"], "--eval-sglang-")
    assert (rest, found) == (["big", "--b", "--", "--eval-sglang-c"], {"a": "1"})


def test_the_trainers_settings_are_found_in_its_config() -> None:
    config: dict[str, Any] = {
        "lr": 0.1,
        "sglang_dtype": "bfloat16",
        "sglang_context_length": 4096,
        "sglang_api_key": "***",
        "sglang_enable_metrics": True,
        "sglang_disable_x": False,
        "args": {"sglang_mem_fraction_static": 0.7, "sglang_dtype": "auto"},
    }
    assert recorded(config) == {
        "mem-fraction-static": "0.7",
        "dtype": "bfloat16",
        "context-length": "4096",
        "enable-metrics": True,
    }


def test_the_evaluations_own_settings_count_before_those_of_training() -> None:
    config = {"sglang_mem_fraction_static": 0.7, "sglang_dtype": "auto", "sglang_log_level": "info"}
    found = engine_settings(config, {"dtype": "bfloat16", "log-level": "error"}, {"mem-fraction-static": "0.9"})
    assert found == {"mem-fraction-static": "0.9", "dtype": "bfloat16", "log-level": "error"}


def test_where_training_engines_stand_and_how_they_share_gpus_is_not_copied() -> None:
    config = {"sglang_tp_size": 8, "sglang_port": 30000, "sglang_router_ip": "1.2.3.4", "sglang_host": "0.0.0.0"}
    assert engine_settings(config, {}, {}) == {}
    assert engine_settings(config, {}, {"tp-size": "2"}) == {"tp-size": "2"}


def test_a_switch_of_training_can_be_taken_back() -> None:
    assert engine_settings({"sglang_disable_radix_cache": True}, {}, {"disable-radix-cache": "false"}) == {}


def test_settings_become_the_arguments_of_an_engine() -> None:
    settings: dict[str, Any] = {"a-b": "1", "switch": True, "many": ["1", "2"], "low": "-1"}
    assert command_line(settings) == ("--a-b", "1", "--switch", "--many", "1", "2", "--low=-1")
