"""What a fleet may be made of, and the command lines that follow."""

import sys

import pytest

from fsrun.adapters.fleet import FleetSettings
from fsrun.adapters.fleet.launch import environment, free_port, is_free
from fsrun.adapters.fleet.settings import engine_command, gpu_groups, router_command, with_seeds
from fsrun.core.errors import UsageError


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({}, "at least one GPU"),
        ({"num_gpus": 3, "gpus_per_engine": 2}, "--eval-num-gpus 3 is no multiple of --eval-num-gpus-per-engine 2"),
        ({"num_gpus": 2, "urls": ("http://a:1",)}, "give one of the two"),
        ({"urls": ("http://a:1",), "sglang_args": ("--dtype", "auto")}, "goes with --eval-num-gpus"),
        ({"urls": ("a:1",)}, "--eval-engine a:1: not a URL"),
        ({"urls": ("http://a:1", "http://a:1")}, "given twice"),
        ({"num_gpus": 1, "sglang_args": ("--port=3",)}, "--eval-sglang-port: fsrun sets that itself"),
        ({"num_gpus": 1, "router_command": " "}, "--eval-router-command: empty"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        FleetSettings(**wrong)  # type: ignore[arg-type]


def test_an_engine_starts_with_the_entry_and_its_version() -> None:
    settings = FleetSettings(4, 2, sglang_python=sys.executable, sglang_args=("--dtype", "bfloat16"))
    command = engine_command(settings, "/snapshots/3", "run/1", 20001)
    assert command == [
        *(sys.executable, "-m", "sglang.launch_server", "--model-path", "/snapshots/3", "--host", "127.0.0.1"),
        *("--port", "20001", "--weight-version", "run/1", "--tp-size", "2", "--dtype", "bfloat16"),
    ]


@pytest.mark.parametrize("given", ["--tp", "--tp-size", "--tensor-parallel-size"])
def test_a_given_parallelism_is_not_overruled(given: str) -> None:
    settings = FleetSettings(2, 2, sglang_python=sys.executable, sglang_args=(given, "1"))
    command = engine_command(settings, "/m", "v", 20001)
    assert [at for at in command if at.startswith("--t")] == [given]


@pytest.mark.parametrize(
    ("name", "start"), [("sglang-router", ["-m", "sglang_router.launch_router"]), ("smg", ["-m", "smg", "launch"])]
)
def test_routers_are_started_by_name(name: str, start: list[str]) -> None:
    settings = FleetSettings(1, sglang_python=sys.executable, router_command=name)
    assert router_command(settings, 20001, 20002)[: 1 + len(start)] == [sys.executable, *start]


def test_a_router_may_be_a_command_line_and_its_flags_win() -> None:
    settings = FleetSettings(1, router_command="/opt/router 'a b'", router_args=("--policy", "cache_aware"))
    command = router_command(settings, 20001, 20002)
    assert command[:2] == ["/opt/router", "a b"]
    assert command[-2:] == ["--policy", "cache_aware"]


@pytest.mark.parametrize(
    ("given", "had"),
    [
        ((), True),
        (("--attention-backend", "fa3", "--device=cuda"), True),
        (("--attention-backend", "torch_native"), False),
        (("--device", "cpu"), False),
        (("--speculative-algorithm", "EAGLE"), False),
    ],
)
def test_engines_heed_seeds_where_they_can_be_started_so(given: tuple[str, ...], had: bool) -> None:
    made = with_seeds(given)
    assert made == ((*given, "--enable-deterministic-inference") if had else given)
    assert with_seeds(made) == made


def test_gpus_are_shared_out_in_groups_of_those_that_are_visible() -> None:
    assert gpu_groups(FleetSettings(4, 2), None) == ["0,1", "2,3"]
    assert gpu_groups(FleetSettings(2), "5,7,6") == ["5", "7"]
    with pytest.raises(UsageError, match="CUDA_VISIBLE_DEVICES=3 has 1"):
        gpu_groups(FleetSettings(2), "3")


def test_an_engine_reaches_itself_without_the_proxy_of_the_shell() -> None:
    found = environment({"A": "1"}, {"NO_PROXY": "x"}, "0,1")
    assert found["NO_PROXY"] == "x,127.0.0.1,localhost"
    assert found["no_proxy"] == "127.0.0.1,localhost"
    assert (found["A"], found["CUDA_VISIBLE_DEVICES"]) == ("1", "0,1")


def test_ports_are_free() -> None:
    assert is_free(free_port())
