"""Tables that fit: where a terminal is narrow, columns go and the last one folds between words; no word is cut up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

_GAP = 3
"""Blanks between two columns, as rich draws them."""
_LEAST = 20
"""A column that may fold is not made narrower than this while another one can go."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its title; ``goes``: the rank at which it is left out (1 first, 0 never); whether its text may fold."""

    title: str
    goes: int = 0
    right: bool = False
    folds: bool = False


def choose(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Indexes of the columns that stay, so that they fit into ``width`` characters as far as that can be."""
    needs = [max(map(len, (column.title, *(row[i] for row in rows)))) for i, column in enumerate(columns)]
    least = [min(need, _LEAST) if column.folds else need for column, need in zip(columns, needs, strict=True)]
    stay = list(range(len(columns)))
    while sum(least[i] for i in stay) + _GAP * (len(stay) - 1) > width:
        going = [i for i in stay if columns[i].goes]
        if not going:
            break
        stay.remove(min(going, key=lambda i: columns[i].goes))
    return stay


def make_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> Table:
    """A table of at most ``width`` columns of characters; empty columns are left out too where they may go."""
    from rich import box
    from rich.table import Table

    full = [i for i, c in enumerate(columns) if not c.goes or any(row[i] not in ("", "-") for row in rows)]
    columns, rows = [columns[i] for i in full], [[row[i] for i in full] for row in rows]
    stay = choose(columns, rows, width)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    first = next((i for i in stay if columns[i].folds), stay[0])
    for i in stay:
        folds = columns[i].folds or i == first
        table.add_column(
            columns[i].title, justify="right" if columns[i].right else "left", overflow="fold", no_wrap=not folds
        )
    for row in rows:
        table.add_row(*(row[i] for i in stay))
    return table
