"""What a plot is given -> the numbers it draws, or an error that says what to pass."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
from xarray import Dataset, DataTree

from pymc_hais.core.messages import quoted


def read_group(tree: Any, group: str, variables: Sequence[str] = (), maker: str = "pm.sample_hais") -> Dataset:
    """Take a group that must hold some variables out of a result of ``maker``."""
    expected = f"Expected the DataTree that {maker} returns, with a group `{group}`"
    if not isinstance(tree, DataTree):
        raise ValueError(f"{expected}; got a {type(tree).__name__}.")
    if group not in tree.children:
        raise ValueError(f"{expected}; got a DataTree with groups: {', '.join(tree.children) or 'none'}.")
    dataset = tree[group].to_dataset()
    missing = [name for name in variables if name not in dataset.data_vars]
    if missing:
        raise ValueError(f"{expected} that holds {quoted(variables)}; {quoted(missing)} not found in this one.")
    if not dataset.data_vars:
        raise ValueError(f"{expected} that holds variables; this one is empty.")
    return dataset


def read_table(table: Any, columns: Sequence[str], maker: str) -> pd.DataFrame:
    """Check that a table of ``maker`` holds some columns, and give its rows names that can be drawn."""
    expected = f"Expected the DataFrame that {maker} returns, with columns {quoted(columns)}"
    if not isinstance(table, pd.DataFrame):
        raise ValueError(f"{expected}; got a {type(table).__name__}.")
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise ValueError(f"{expected}; {quoted(missing)} not found in this one.")
    if not len(table):
        raise ValueError(f"{expected}; this one has no rows.")
    return table.set_axis([str(name) for name in table.index])
