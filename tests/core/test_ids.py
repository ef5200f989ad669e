"""Names: the grammar, and portable forms that never meet."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsrun.core import ids
from fsrun.core.ids import EntryClass


@pytest.mark.parametrize("name", ["speech", "A", "latest", "best", "queue", "meta", "2026.11", "a=b_c-d", "x" * 128])
def test_an_ordinary_id_is_its_own_folder(name: str) -> None:
    assert ids.portable(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "2026-06-21T20:30:14",
        "con",
        "aux.txt",
        "a.",
        "a ",
        "a<b",
        ".",
        "..",
        "",
        "x" * 250,
        "a/b",
        "naïve",
        "run.tmp",
        "\udc80",
    ],
)
def test_any_other_id_gets_a_portable_folder(name: str) -> None:
    folder = ids.portable(name)
    assert ids.is_id(folder)
    assert folder != name
    assert ids.portable(name) == folder


def test_long_ids_that_begin_alike_do_not_meet() -> None:
    assert ids.portable("x" * 200 + "1") != ids.portable("x" * 200 + "2")
    assert ids.portable("electric-batter-6362579afd91") != ids.portable("electrical-solution-5b54ee2f4ca8")


@given(st.text(max_size=300))
def test_every_text_has_a_portable_folder_and_keeps_it(text: str) -> None:
    folder = ids.portable(text)
    assert ids.is_id(folder)
    assert ids.portable(folder) == folder


@given(st.text(max_size=40), st.text(max_size=40))
def test_two_ids_never_share_a_folder(a: str, b: str) -> None:
    assert (ids.portable(a) == ids.portable(b)) <= (a == b or a == ids.portable(b) or b == ids.portable(a))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("epoch_012.pt", EntryClass.ENTRY),
        ("epoch=3-step=1200.ckpt", EntryClass.ENTRY),
        ("é" * 100, EntryClass.ENTRY),
        ("é" * 101, EntryClass.REFUSED),
        ("a\nb", EntryClass.REFUSED),
        ("a\x7fb", EntryClass.REFUSED),
        ("\udcff.pt", EntryClass.REFUSED),
        ("", EntryClass.REFUSED),
        ("a/b", EntryClass.REFUSED),
        (".hidden", EntryClass.IGNORED),
        ("x.pt.tmp", EntryClass.IGNORED),
        ("FINISHED", EntryClass.IGNORED),
    ],
)
def test_a_name_in_the_queue_is_an_entry_ignored_or_refused(name: str, kind: EntryClass) -> None:
    assert ids.classify_entry(name) is kind
    assert ids.is_entry(name) == (kind is EntryClass.ENTRY)


@pytest.mark.parametrize(
    ("name", "use", "result"),
    [
        ("epoch_012.pt", 2, "epoch_012~2.pt"),
        ("epoch_012~2.pt", 3, "epoch_012~3.pt"),
        ("epoch_012~2.pt", 1, "epoch_012.pt"),
        ("checkpoint-500", 2, "checkpoint-500~2"),
        ("model-0.5", 2, "model-0.5~2"),
        ("a.tar.gz", 2, "a.tar~2.gz"),
        ("~3", 2, "~3~2"),
        ("x~1.pt", 2, "x~1~2.pt"),
    ],
)
def test_the_use_of_a_name_is_marked_before_its_suffix(name: str, use: int, result: str) -> None:
    assert ids.use_entry(name, use) == result


def test_a_marked_name_still_fits() -> None:
    name = ids.use_entry("é" * 100, 12)
    assert len(name.encode()) <= ids.MAX_ENTRY
    assert ids.split_entry(name)[1] == 12


@given(st.text(min_size=1, max_size=60), st.integers(2, 10**6))
def test_a_marked_name_tells_its_use(text: str, use: int) -> None:
    if ids.is_entry(text):
        marked = ids.use_entry(text, use)
        assert ids.split_entry(marked)[1] == use
        assert ids.use_entry(ids.use_entry(marked, use + 1), use) == marked


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0), ("12", 12), ("01", None), ("", None), ("-1", None), ("٣", None), ("1" * 19, None)]
)
def test_numbers_have_one_form(text: str, number: int | None) -> None:
    assert ids.parse_number(text) == number


@pytest.mark.parametrize(
    ("text", "good"),
    [("0123abcd", True), ("0123abc", False), ("ABCDEFGH", False), ("a" * 33, False), ("abcdefg\n", False)],
)
def test_tokens(text: str, good: bool) -> None:
    assert ids.is_token(text) is good


@pytest.mark.parametrize(
    ("text", "good"),
    [("main", True), ("a" * 48, True), ("a" * 49, False), ("Eval", False), ("a.b", False), ("main\n", False)],
)
def test_jobs(text: str, good: bool) -> None:
    assert ids.is_job(text) is good
