"""An estimate as a value: its error, its findings and its data, its differences, and how it is shown."""

from pymc_hais.estimators.values.factor import BayesFactor, LogBayesFactor
from pymc_hais.estimators.values.log_z import LogZEstimate, ObservedData, describe_data
from pymc_hais.estimators.values.shown import NORMAL_REACH, Finding, to_html, to_text
