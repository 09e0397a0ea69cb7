"""Rows of added tokens in NumPy float64: the known rows' mean, and noise of their covariance."""

import numpy as np


def grown_table(table, noise, *, before, rows, known, created, covariance_scale):
    """``table [v d]``, ``noise [len(created) v]`` of standard normal draws, to ``[rows d]``; what is no token is 0."""
    of_known = table[:known].astype(np.float64)
    mean = np.zeros(table.shape[1])
    for row in of_known:
        mean += row / known
    grown = np.zeros((rows, table.shape[1]))
    for row in range(min(before, rows)):
        grown[row] = table[row]
    for index, token in enumerate(created):
        grown[token] = mean
        for z, row in zip(noise[index], of_known):
            grown[token] += np.sqrt(covariance_scale / known) * float(z) * (row - mean)
    return grown
