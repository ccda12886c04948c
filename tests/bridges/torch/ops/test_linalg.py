"""Linear algebra and Fourier transforms: torch's numbers, and what its derivatives save."""

import pytest

torch = pytest.importorskip("torch")

from tanjax.bridges import torch as tjt
from torch_calls import assert_agree, ours

A = torch.arange(1, 17, dtype=torch.float64).square().reshape(4, 4).cos()
BATCH = torch.stack([A, A.mT + 0.2])
TALL = torch.arange(1, 16, dtype=torch.float64).reshape(5, 3).sin()
B = TALL[:4]


def spd(a):
    return a @ a.mT + torch.diag_embed(a[..., 0] * 0 + 0.5)


MATRICES = {
    "products": lambda a: (
        torch.addmm(a, a, a, beta=0.5, alpha=2),
        torch.einsum("ij,kj->ik", a, a),
        torch.mv(a, a[0]),
        torch.dot(a[0], a[1]),
        torch.nn.functional.linear(a, a[:2], a[0, :2]),
    ),
    # Torch saves the factors of the transpose for a matrix that lies in order in memory.
    "det": lambda a: (torch.linalg.det(a), torch.linalg.det(a.mT), torch.linalg.det(a[1:, 1:])),
    "slogdet": lambda a: (torch.linalg.slogdet(a), torch.linalg.slogdet(a.mT)),
    "solve": lambda a: (
        torch.linalg.solve(a, a[0]),
        torch.linalg.solve(a.mT, a[:, :2]),
        torch.linalg.solve(a, a[:2], left=False),
    ),
    "inverse": lambda a: (torch.linalg.inv(a), torch.linalg.matrix_power(a, -2)),
    "lu": lambda a: (torch.linalg.lu(a), torch.linalg.lu_factor(a)),
    "lu_solve": lambda a: [
        torch.linalg.lu_solve(*torch.linalg.lu_factor(a), a[:, :2], adjoint=adjoint)
        for adjoint in (False, True)
    ],
    "cholesky": lambda a: (
        torch.linalg.cholesky(spd(a), upper=True),
        torch.cholesky_solve(a[:, :2], torch.linalg.cholesky(spd(a))),
        torch.cholesky_inverse(torch.linalg.cholesky(spd(a))),
    ),
    "triangular": lambda a: (
        torch.linalg.solve_triangular(a.tril(), a[:, :2], upper=False),
        torch.linalg.solve_triangular(a, a[:2], upper=True, left=False, unitriangular=True),
    ),
    "eigh": lambda a: (torch.linalg.eigvalsh(spd(a)), torch.linalg.eigh(spd(a))[1].abs()),
    "eig": lambda a: torch.linalg.eigvals(a).abs().sort()[0],
    "svd": lambda a: (torch.linalg.svdvals(a[:3]), torch.linalg.svd(a)[0].abs()),
    "functions": lambda a: (torch.linalg.matrix_exp(a), torch.linalg.pinv(a[:3])),
    "norms": lambda a: (torch.linalg.norm(a), torch.linalg.matrix_norm(a, 2), torch.linalg.cond(a)),
    "distances": lambda a: (torch.cdist(a, a[:3] + 1, p=1.5), torch.nn.functional.pdist(a)),
    "rfft": lambda a: (torch.fft.rfft(a), torch.fft.irfft(torch.fft.rfft(a) * 2, 5, norm="ortho")),
    "fft": lambda a: (torch.fft.fft2(a), torch.fft.ifft(a + 1j * a.mT, norm="forward")),
}


@pytest.mark.parametrize("name", MATRICES)
def test_matrices(name):
    assert_agree(MATRICES[name], A)


def test_batches_and_tall_matrices():
    assert_agree(lambda a: (torch.linalg.slogdet(a)[1], torch.linalg.solve(a, a[0, :, :1])), BATCH)
    assert_agree(
        lambda a, b: (torch.linalg.lstsq(a, b).solution, torch.linalg.qr(a)),
        TALL[:, :2],
        TALL[:, 2:],
    )


def test_what_does_not_factorize_is_said_as_torch_says_it():
    singular, indefinite = ours(torch.ones(3, 3)), ours(torch.diag(torch.tensor([1.0, 2, -1])))
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        torch.linalg.inv(singular)
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        torch.linalg.solve(singular, singular)
    with pytest.raises(torch.linalg.LinAlgError, match="leading minor of order 3"):
        torch.linalg.cholesky(indefinite)
    assert tjt.to_torch(torch.linalg.cholesky_ex(indefinite).info).item() == 3


def test_what_is_multiplied_by_zero_is_not_looked_at():
    nan = torch.full((2, 2), float("nan"), dtype=torch.float64)
    assert_agree(lambda a: torch.addmm(a * 1, torch.ones_like(a), torch.ones_like(a), beta=0), nan)
