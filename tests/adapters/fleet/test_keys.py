"""Keys of engines, and where they are seen."""

import stat
from pathlib import Path

from fsrun.adapters.fleet.keys import Keys, in_arguments, take


def test_keys_are_taken_out_of_the_arguments_and_count_before_those_of_the_environment() -> None:
    arguments = ("--dtype", "auto", "--api-key", "a", "--admin-api-key=b", "--tp", "2")
    assert take(arguments, Keys("x", "y")) == (("--dtype", "auto", "--tp", "2"), Keys("a", "b"))
    assert take(("--tp", "2"), Keys("x", "y")) == (("--tp", "2"), Keys("x", "y"))


def test_what_a_record_has_in_place_of_a_key_is_none() -> None:
    assert take(("--api-key", "***"), Keys()) == ((), Keys())


def test_an_engine_with_a_file_of_settings_of_its_own_keeps_its_keys() -> None:
    arguments, keys = take(("--config", "mine.yaml", "--api-key", "a"), Keys())
    assert (arguments, keys) == (("--config", "mine.yaml", "--api-key", "a"), Keys("a"))
    assert in_arguments(arguments)


def test_the_file_quotes_what_yaml_would_misread_and_shows_in_no_repr() -> None:
    keys = Keys("1: #", None)
    assert keys.settings() == 'api-key: "1: #"\n'
    assert Keys().settings() is None
    assert "#" not in repr(keys)


def test_only_this_user_reads_the_file(tmp_path: Path) -> None:
    import asyncio

    from fsrun.adapters.fleet.processes import Processes

    async def write() -> tuple[int, int]:
        processes = Processes(str(tmp_path / "logs"))
        try:
            path = Path(processes.private("engine-0", "keys.yaml", "first"))
            assert Path(processes.private("engine-0", "keys.yaml", "again")) == path
            assert path.read_text() == "again"
            return stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)
        finally:
            processes.close()

    assert asyncio.run(write()) == (0o600, 0o700)
