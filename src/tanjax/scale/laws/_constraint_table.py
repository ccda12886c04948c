"""The entries of JAX's primitives: which kind each is, by name.

The names are those of JAX 0.10.2 to 0.12; a test compares them with the primitives that `jax.lax`
has. What is in no group here and in no table works on the numbers themselves, which a report shows.
"""

from __future__ import annotations

from ..graph import _lu
from ..graph._graph import CALLS
from . import _constraints as c

_GROUPS: dict[str, str] = {
    "same": """
        add add_any sub neg abs max min rem real imag complex conj clamp concatenate reshape
        broadcast_in_dim transpose squeeze rev slice dynamic_slice dynamic_update_slice scatter
        scatter-add scatter-sub scatter-min scatter-max pad stack unstack name split tile reduce_sum
        reduce_max reduce_min cumsum cummax cummin fft copy stop_gradient reduce_window_sum
        reduce_window_max reduce_window_min select_and_gather_add""",
    "pairwise": """
        sort top_k approx_top_k optimization_barrier pvary pcast reshard sharding_constraint
        layout_constraint device_put psum psum_invariant pmax pmin ppermute pbroadcast
        all_gather all_gather_invariant all_gather_reduced all_to_all reduce_scatter
        unreduced_psum unreduced_reduce_scatter vary_unreduced_cast vary_unreduced_cast_p
        reduced_vary_cast reduced_vary_cast_p preduced""",
    "product": "mul dot_general conv_general_dilated tanjax_symmetric_outer ragged_dot_general",
    "quotient": "div",
    "compared": "eq ne lt le gt ge eq_to lt_to le_to",
    "free": """
        sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh expm1 log1p logistic erf erfc
        erf_inv round floor ceil reduce_prod cumprod""",
    "any": "sign is_finite argmax argmin",
    "at_zero": """
        lgamma digamma polygamma igamma igammac igamma_grad_a zeta
        regularized_incomplete_beta bessel_i0e bessel_i1e
        nextafter cumlogsumexp bitcast_convert_type
        geqrf geqp3 householder_product hessenberg tridiagonal ormqr
        reduce_and reduce_or reduce_xor and or xor not population_count clz shift_left
        shift_right_arithmetic shift_right_logical mulhi random_bits random_seed random_split
        random_fold_in random_wrap random_unwrap random_clone threefry2x32 rng_bit_generator
        rng_uniform iota empty empty2 create_token after_all platform_index axis_index
        lu_pivots_to_permutation pure_callback io_callback debug_callback debug_print
        random_gamma ffi_call dce_sink from_edtype to_edtype""",
    "call": """
        custom_linear_solve eval_jaxpr jit pjit closed_call remat remat2 checkpoint
        custom_jvp_call custom_vjp_call custom_lin custom_vmap_call shard_map tanjax_linear call
        run_state composite""",
}


def fill() -> None:
    """Write the entries; called once, when the layer is imported."""
    table = c._table
    kinds = {**c.KINDS, "free": c.free}  # it asks for an identity, so it is not for registration
    for kind, names in _GROUPS.items():
        for name in names.split():
            table[name] = c.Constraint(kind, kinds[kind])
    CALLS.update(_GROUPS["call"].split())
    powers = {"sqrt": (1, 2), "rsqrt": (-1, 2), "cbrt": (1, 3), "square": (2, 1)}
    for name, ratio in powers.items():
        table[name] = c.Constraint(f"power {'/'.join(map(str, ratio))}", c.power(*ratio))
    table["cholesky"] = table["sqrt"]
    for name, place in (("eigh", 1), ("eig", 0), ("svd", 0), ("schur", 0), ("qr", 1)):
        table[name] = c.Constraint("spectral", c._spectral(place))
    for name, rule in (
        ("integer_pow", c._integer_power),
        ("pow", c._general_power),
        ("reduce", c._reduction),
        ("reduce_window", c._reduction),
        ("exp", c._complex_too),
        ("exp2", c._complex_too),
        ("log", c._complex_too),
        ("log2", c._complex_too),
        ("atan2", c._angle),
        ("gather", c._gather),
        ("select_n", c._select),
        ("reduce_precision", c._reduce_precision),
        ("convert_element_type", c._convert),
        ("triangular_solve", c._triangular_solve),
        ("tridiagonal_solve", c._tridiagonal_solve),
        ("scatter-mul", c._scatter_mul),
        ("select_and_scatter_add", c._select_and_scatter_add),
        ("scan", c._scan),
        ("while", c._while),
        ("cond", c._cond),
    ):
        table[name] = c.Constraint(rule.__name__.strip("_"), rule)
    c.register_constraint(_lu.NAME, _lu.rows, evaluate=_lu.evaluate, interval=_lu.interval)
