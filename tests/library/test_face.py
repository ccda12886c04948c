"""The names that `tanjax` and its namespaces offer."""

import importlib
import subprocess
import sys

import pytest

import tanjax as tj

SPACES = ("errors", "linalg", "programs", "refs", "rules", "tangents")
# Every name that `tanjax` has without listing it, by the namespace that documents it.
OLD = {
    "errors": "AliasError CaptureError CaptureWarning CheckFailure ConvergenceError CotangentError "
    "HiddenCotangentWarning MutationError NotDefiniteError RegistrationError RulePackError "
    "RulePackWarning ScaleError ScaleWarning",
    "linalg": "EighResult Factorization FactorizationPlan LUResult QRResult Root SVDResult "
    "SlogdetResult add assert_definite cholesky concatenate condition_number diagonal divide eigh "
    "eigvalsh expm fractional_matrix_power funm_hermitian funm_multiply inv_quad_logdet kron logm "
    "lstsq lu matrix_power matrix_rank multiply negative pinv qr quadratic_form slogdet "
    "solve_discrete_lyapunov solve_lyapunov solve_sylvester solve_triangular sqrtm stack subtract "
    "sum svd transpose",
    "programs": "CaptureMeta Interpreter Program adjoint associative_scan ctrl for_loop handles "
    "higher_order map passes switch",
    "refs": "GradientRefs InPlace StructuredRef Transition accumulate combine discharge fdata "
    "fdata_type freeze gradient increment rdata rdata_type set_to_zero zero_refs",
    "rules": "Operation array_field as_custom_vjp densified frule is_structured rrule static_field",
    "tangents": "Masked Sum add_tangents free_coordinates inner_product is_visible natural project "
    "pullback_of_destructure pullback_of_restructure pushforward_of_destructure "
    "pushforward_of_restructure restructure structural tangent_type zero_tangent",
}


@pytest.mark.parametrize("space", SPACES)
def test_old_names_are_importable_and_not_listed(space):
    for name in OLD[space].split():
        assert getattr(tj, name) is getattr(getattr(tj, space), name)
        assert name not in tj.__all__


@pytest.mark.parametrize("space", SPACES)
def test_a_namespace_lists_what_it_has(space):
    module = importlib.import_module(f"tanjax.{space}")
    assert set(OLD[space].split()) <= set(module.__all__) <= set(dir(module))
    for name in set(module.__all__) & set(tj.__all__):
        assert getattr(tj, name) is getattr(module, name)


def test_the_top_level_lists_few_names_and_has_them_all():
    assert dir(tj) == sorted(set(tj.__all__))
    assert len(tj.__all__) == len(set(tj.__all__)) <= 80
    for name in tj.__all__:
        assert getattr(tj, name) is not None


def test_quantities_have_one_class():
    assert tj.Unitful is tj.Quantity
    assert tj.Quantity.__name__ == type(tj.quantity(1.0, "m")).__name__ == "Quantity"


@pytest.mark.processes
def test_an_import_leaves_what_is_rarely_used():
    """Namespaces with much code are imported at their first use."""
    rare = "numpy", "lax", "scipy", "testing", "bridges", "capture.passes"
    code = f"import sys, tanjax; print([n for n in {rare} if f'tanjax.{{n}}' in sys.modules])"
    got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert got.stdout.strip() == "[]"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'gradd'"):
        tj.gradd  # noqa: B018
