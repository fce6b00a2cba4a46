"""Transition kernels: each is a pure function of one particle."""

from pymc_hais.kernels.composed import Block, Composed
from pymc_hais.kernels.gibbs import Gibbs, SiteBlock
from pymc_hais.kernels.hamiltonian import Hamiltonian
from pymc_hais.kernels.random_walk import RandomWalk
from pymc_hais.kernels.reflection import LinearConstraints
