"""Run the tests of the faults that users' programs found, by fault.

    python tests/support/faults.py               # all of them
    python tests/support/faults.py torch ref     # whose line has one of these words

Each line of `FAULTS` names a former fault, and the tests that now cover it. Tests
of `tests/bridges/torch` run where PyTorch is installed.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FAULTS: dict[str, dict[str, str]] = {
    "linear algebra": {
        "Kronecker @ B took twice as long as by hand": (
            "arrays/types/test_kronecker.py::test_no_order_of_factors_multiplies_less"
        ),
        "many equal blocks were worked one by one": (
            "test_stacked.py"
        ),
        "a complex low-rank update had no Hermitian form": (
            "arrays/types/test_low_rank_update.py"
        ),
        "det of a singular matrix had a finite wrong gradient": (
            "kernels/test_determinant.py"
        ),
        "wrap_natural_pullback dropped a hidden part silently": (
            "registry/test_natural.py::test_a_part_that_is_dropped_is_warned_of"
        ),
        "LSMR and normal equations solved a system without a solution": (
            "operations/test_iterative.py::test_least_squares_of_a_system_without_a_solution_raise"
        ),
        "inv_quad of a LowRankUpdate lost digits near its span": (
            "operations/together/test_factorize.py"
            "::test_quadratic_form_of_a_vector_near_the_span_of_an_update_keeps_its_digits"
        ),
        'densify("error") let norm, dot and tj.grad form n x n arrays': (
            "arrays/together/test_pairings.py"
        ),
        "jax.export with symbolic sizes raised": "library/test_symbolic_shapes.py",
        "expm of a badly scaled matrix was nan": "kernels/test_exponential.py",
        "factorize of bands, Toeplitz and sums was dense": (
            "operations/together/test_structured_factors.py"
        ),
        "dense batches had no factors": (
            "operations/test_factorizations.py::test_batches_are_those_of_jax_numpy"
        ),
        "the kit did not ask `check=` about dense arguments": (
            "testing/test_operation.py"
            "::test_the_check_of_an_operation_answers_for_variants_of_dense_arguments"
        ),
        "failures of array types had no file and line": (
            "testing/test_array_type.py::test_failures_name_the_method_of_the_author"
        ),
        "a sum of products of a matrix and a vector did not say which dot multiplies": (
            "operations/test_operations.py::test_dot_of_numpy_is_the_product"
        ),
    },
    "mutation and closures": {
        "no derivative took a Ref": (
            "mutation/test_contents.py"
        ),
        "one matrix of a batch could not be written": (
            "mutation/test_refs.py::test_arrays_of_a_batch_are_written_one_by_one"
        ),
        "a field of another size was broadcast into memory": (
            "mutation/test_refs.py::test_a_field_of_another_size_is_refused_and_not_broadcast"
        ),
        "views that do not overlap were one memory": (
            "mutation/test_aliases.py::test_views_that_do_not_overlap_are_two_memories"
        ),
        "*args and texts were refused in place": (
            "mutation/test_inplace.py::test_arguments_of_any_kind"
        ),
        "None was no buffer": (
            "mutation/test_into.py::test_a_buffer_that_is_none_freezes_its_parameter"
        ),
        "a StructuredRef was taken for an array": (
            "mutation/test_refs.py::test_memory_where_an_array_is_meant_has_to_be_read"
        ),
        "arrays in callables and closures had a gradient of 0": (
            "registry/test_operation.py"
            "::test_a_body_that_closes_over_tracers_is_differentiated_in_them"
        ),
        "a callable pytree with arrays had a gradient of 0": (
            "registry/test_operation.py::test_a_pushforward_rule_sees_no_callable_that_is_a_tree"
        ),
        "arrays from tj.refs.freeze changed with the Ref": (
            "mutation/test_refs.py::test_frozen_arrays_stay_when_the_ref_is_written"
        ),
        "state that a body reads was compiled in, unsaid": (
            "registry/test_operation.py"
            "::test_state_that_a_body_reads_is_compiled_in_unless_jit_is_false"
        ),
        "an index out of range wrote the last entry": (
            "mutation/test_refs.py::test_an_integer_out_of_range"
        ),
        "right rules were refused for last bits": (
            "testing/test_operation.py::test_a_right_rule_is_not_refused_for_its_last_bits"
        ),
        "scan over a Ref raised": "mutation/test_discharge.py::test_scan_over_a_ref_in_every_mode",
        "svd and eigh under vmap inside of shard_map had no gradient": (
            "library/test_many_devices.py::test_every_rule_under_shard_map"
        ),
        "a Ref inside of shard_map was an AttributeError": (
            "mutation/test_discharge.py::test_a_ref_that_shard_map_closes_over_is_refused"
        ),
        "the shipped optimisers lost the sharding of a Ref": (
            "mutation/together/test_optimisers.py::test_sharded_parameters_stay_where_they_are"
        ),
        "an error at run time destroyed a Ref": (
            "mutation/test_inplace.py"
            "::test_an_error_at_run_time_without_compilation_leaves_the_memory"
        ),
        "a Ref made in a custom_jvp function had no Jacobian": (
            "mutation/test_discharge.py::test_a_ref_in_a_function_with_a_rule_of_jax"
        ),
        "a Module as function of a matrix raised": (
            "operations/test_matrix_functions.py"
            "::test_a_module_as_function_is_called_and_differentiated"
        ),
        "r[i] += v copied the array in each step of a gradient": (
            "mutation/test_access.py::test_indexed_steps_cost_what_they_touch"
        ),
        "methods could be neither operations nor in-place functions": (
            "mutation/test_inplace.py::test_a_method_writes_to_its_arguments"
        ),
        "rules got NumPy arrays with JAX 0.10": (
            "registry/test_rule_api.py"
            "::test_a_rule_gets_arrays_of_jax_where_numpys_are_handed_in"
        ),
        "the ladder of finite differences ended too early": (
            "testing/test_finite_differences.py::test_the_ladder_goes_on_while_its_error_falls"
        ),
    },
    "torch": {
        "linearize and make_fx of jvp gave 0": (
            "torch/compiler/test_traced.py"
        ),
        "vmap over a structured weight raised": (
            "torch/structure/test_structured.py"
            "::test_gradients_by_sample_of_several_fields_are_those_of_jax"
        ),
        "checkpoint of quantities raised": (
            "torch/together/test_quantities.py"
            "::test_checkpoints_compute_again_what_was_computed"
        ),
        "quantities had no memory, masks and tolerances": (
            "torch/together/test_quantities.py"
        ),
        "a layer of Identity raised in float64": (
            "torch/structure/test_structured.py::test_layers_of_arrays_without_floating_numbers_step"
        ),
        "averages of structured models raised": (
            "torch/together/test_optimisers.py"
            "::test_averages_of_models_are_those_of_the_fields"
        ),
        "the backend had no cond, while_loop and scan": (
            "torch/graphs/test_branches.py"
        ),
        "convert had no inverse": (
            "torch/tensor/test_conversions.py::test_revert_is_the_inverse_of_convert"
        ),
        "plain tensors among factories were uninitialised memory": (
            "torch/table/test_decompositions.py"
            "::test_plain_numbers_are_read_as_they_are_among_factories"
        ),
        "wrap refused plain tensors that need gradients": (
            "torch/autograd/test_wrap.py::test_plain_tensors_give_plain_tensors_and_gradients"
        ),
        "as_jax trained frozen parameters and buffers": (
            "torch/graphs/test_as_jax.py::test_an_optimiser_of_jax_moves_what_one_of_torch_moves"
        ),
        "as_jax dropped backward hooks": (
            "torch/graphs/test_as_jax.py::test_a_backward_hook_is_not_passed_over"
        ),
        "gradients of as_jax at kinks were those of JAX": "torch/together/test_kinks.py",
        "a write by torch reached an array of JAX": (
            "torch/tensor/test_conversions.py::test_no_write_reaches_an_array_of_jax"
        ),
        "parameters of distributions were not checked": (
            "torch/ops/test_random.py::test_parameters_that_torch_refuses_are_refused"
        ),
        "attention with shared keys raised": (
            "torch/ops/test_attention.py::test_heads_that_share_keys_are_torchs"
        ),
        "views raised in inference mode": (
            "torch/together/test_contexts.py"
            "::test_views_in_inference_mode_are_those_of_torch"
        ),
        "a transposed input copied the weight for each position": (
            "torch/memory/test_dispatch.py"
            "::test_attention_with_the_batch_first_costs_what_it_costs_without"
        ),
        "cotangents of complex numbers were not conjugated": (
            "torch/autograd/test_wrap.py::test_gradients_of_complex_numbers_are_torchs"
        ),
    },
    "neighbours": {
        "a label with a power of two broke optimisers of optax": (
            "bridges/test_optax.py::test_hundred_steps_in_float32_far_from_one_keep_one_structure"
        ),
        "results that fit had a power of two in their label": (
            "transforms/test_planning.py"
            "::test_results_that_fit_leave_without_a_power_whatever_came_in"
        ),
        "bridges read leaves without their power of two": (
            "bridges/test_optax.py::test_powers_of_two_in_labels_count_or_are_refused"
        ),
        "samplers and Newton walked in redundant storage": (
            "transforms/test_free_coordinates.py"
        ),
        "stored entries that contradict each other were not found": "testing/test_storage.py",
        "solvers of optimistix failed on structured unknowns": (
            "bridges/test_optimistix.py::test_solvers_of_second_order_find_structured_unknowns"
        ),
        "an array was no whole unknown or state": (
            "bridges/together/test_every_type.py"
            "::test_an_array_is_the_whole_unknown_and_the_whole_state"
        ),
        "A == None raised": (
            "frontends/test_operators.py::test_operators_defer_to_what_they_do_not_know"
        ),
        "a Factorization did not pickle": (
            "operations/together/test_factorize.py::test_a_factorization_pickles_and_is_exported"
        ),
        "dataclasses.replace raised for eight types": (
            "arrays/test_constructors.py::test_dataclasses_replace_is_replace"
        ),
        "A[...] was dense": "frontends/test_operators.py::test_whole_axes_keep_the_structure",
        "a parameter of flax was no structured array": "registry/together/test_holders.py",
        "CG of lineax refused a LowRankUpdate": (
            "bridges/test_lineax.py"
            "::test_who_chooses_a_solver_of_definite_matrices_promises_one"
        ),
    },
}  # fmt: skip


class Outcomes:
    """A plugin that keeps which tests failed, and how many ran."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.ran: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)
        if report.when == "call":
            self.ran.append(report.nodeid)


def main(words: list[str]) -> int:
    """Run the tests and print a line for each fault; 1 if one is back, or its tests did not run."""
    chosen = {
        f"{area}: {fault}": f"tests/{test}"
        for area, faults in FAULTS.items()
        for fault, test in faults.items()
        if not words or any(word.lower() in f"{area}: {fault}".lower() for word in words)
    }
    if importlib.util.find_spec("torch") is None:
        chosen = {k: v for k, v in chosen.items() if not k.startswith("torch")}
        print("PyTorch is not installed: its faults are left out.")
    outcomes = Outcomes()
    pytest.main(["-q", f"--rootdir={ROOT}", *(str(ROOT / t) for t in chosen.values())], [outcomes])
    are_back = 0
    for fault, test in chosen.items():
        failed = any(name.startswith(test) for name in outcomes.failed)
        ran = any(name.startswith(test) for name in outcomes.ran)
        are_back += failed or not ran
        print("BACK   " if failed else "mended " if ran else "NOT RUN", fault)
    return int(bool(are_back))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
