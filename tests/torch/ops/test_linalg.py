"""Functions of matrices on tensors: digits that JAX's own functions lose, and their gradients."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tanjax.bridges import torch as tjt

pytestmark = pytest.mark.torch


def test_matrix_exp_keeps_the_digits_of_entries_far_apart():
    a = tjt.from_torch(torch.tensor([[1.0, 1e6], [0.0, -1.0]])).requires_grad_()
    x = torch.linalg.matrix_exp(a)
    want = [[np.e, 1e6 * np.sinh(1)], [0, 1 / np.e]]
    np.testing.assert_allclose(tjt.to_torch(x.detach()), want, rtol=2e-6)
    x[1, 1].backward()
    slopes = [[0, 0], [1e6 * (np.sinh(1) - 1 / np.e) / 2, 1 / np.e]]
    np.testing.assert_allclose(tjt.to_torch(a.grad), slopes, rtol=2e-6)
