"""Persistent chains of PyPI's ``rbms`` for ``benchmarks/learning.py``, in an environment that has it (and torch).

``python learning_rbms.py FOLDER n_hidden n_steps batch_size n_chains n_moves rate seed`` reads ``rows.npy`` and writes
``fitted.npz``: parameters, and wall and CPU seconds of the steps.
"""

import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from rbms.bernoulli_bernoulli.classes import BBRBM
from rbms.training.pcd import fit_batch_pcd

folder, *numbers = sys.argv[1:]
n_hidden, n_steps, batch_size, n_chains, n_moves = map(int, numbers[:5])
torch.manual_seed(int(numbers[6]))
if n_hidden < 100:
    torch.set_num_threads(1)  # more only wait for each other
rows = torch.from_numpy(np.load(Path(folder, "rows.npy"))).float()
with torch.no_grad():
    begin = np.array([time.perf_counter(), time.process_time()])
    dataset = SimpleNamespace(data=rows, weights=torch.ones(len(rows), 1))
    machine = BBRBM.init_parameters(n_hidden, dataset, torch.device("cpu"), torch.float32)
    chains = machine.init_chains(n_chains)
    for one in machine.parameters():
        one.grad = torch.zeros_like(one)
    optimizer = torch.optim.SGD(machine.parameters(), lr=float(numbers[5]), maximize=True)
    for _ in range(n_steps):
        chosen = torch.randperm(len(rows))[:batch_size]
        optimizer.zero_grad(set_to_none=False)
        batch = rows[chosen], torch.ones(batch_size)
        chains, _ = fit_batch_pcd(batch, chains, machine, n_moves, 1.0, centered=True)
        optimizer.step()
    seconds = np.array([time.perf_counter(), time.process_time()]) - begin
parts = {"W": machine.weight_matrix, "b": machine.vbias, "c": machine.hbias}
np.savez(Path(folder, "fitted.npz"), seconds=seconds, **{name: one.double().numpy() for name, one in parts.items()})
