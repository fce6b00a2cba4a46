"""One model of a row, many rows of data: a log Z for each, with one plan and one compiled program."""

from pymc_hais.rows.blocks import RowResult, RowSettings
from pymc_hais.rows.problem import RowProblem, build_row_problem
from pymc_hais.rows.rounds import RowEstimates, estimate_rows

__all__ = ["RowEstimates", "RowProblem", "RowResult", "RowSettings", "build_row_problem", "estimate_rows"]
