"""The table of compared models: a DataFrame that prints each value beside its error, in 80 columns."""

import pandas as pd

#: Columns of values, and those of their errors.
_ERRORS = {"log_bayes_factor": "se_bayes_factor", "probability": "se_probability", "log_z": "se"}


class ModelTable(pd.DataFrame):
    """A DataFrame of models; pandas would hide the Bayes factors of its eight columns in a terminal."""

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return ModelTable

    def __repr__(self) -> str:
        """Show values with their errors; whether to trust a model only where one has a warning."""
        if not {*_ERRORS, *_ERRORS.values()} <= set(self.columns):
            return super().__repr__()
        shown = {name: [_pair(*row) for row in zip(self[name], self[se], strict=True)] for name, se in _ERRORS.items()}
        hidden = {*shown, *_ERRORS.values(), "rank", "warning"}
        shown |= {name: self[name].tolist() for name in self.columns if name not in hidden}
        if "warning" in self and self["warning"].any():
            shown["warning"] = ["yes" if one else "" for one in self["warning"]]
        return pd.DataFrame(shown, index=self.index).to_string(max_rows=pd.get_option("display.max_rows"))


def _pair(value: float, se: float) -> str:
    return "0" if value == se == 0.0 else f"{value:.3f} ± {se:.3f}"
