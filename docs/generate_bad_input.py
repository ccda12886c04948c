"""Write the page about bad input to every operation, by calling the operations.

Each cell comes from calls on a dense array, structured ones and a batch. It shows the result, or an
error of tanjax that begins with the name of the operation. Any other error fails. JAX only traces
the calls, and runs those whose answer depends on values (singular, indefinite, not converged).

    python docs/generate_bad_input.py           # write docs/pages/bad_input.md
    python docs/generate_bad_input.py --check   # fail if the page is stale
"""

import functools
import inspect
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import lineax
import numpy as np
from generated_parts import renewed, write_or_check

import tanjax as tj
from tanjax.registry import operations

PAGE = Path(__file__).parent / "pages" / "bad_input.md"
OURS = tuple(c for c in vars(tj).values() if inspect.isclass(c) and issubclass(c, Exception))


def sparse(dense):
    return tj.Sparse(dense.ravel(), np.indices(dense.shape).reshape(2, -1).T, dense.shape)


def low_rank(dense):
    return tj.LowRank(np.eye(len(dense), dtype=dense.dtype), np.ascontiguousarray(dense.T))


def banded(dense):
    bands = np.zeros((2, len(dense)), dense.dtype)
    bands[0], bands[1, : len(dense) - 1] = dense.diagonal(), dense.diagonal(-1)
    return tj.Banded(bands, 1, 0)


def batch_of_low_rank(dense):
    return jax.tree.map(lambda x: jnp.stack([x, x]), low_rank(dense))


# Functions that convert a dense matrix, or the part that a type stores, to each type. `OBLONG` has
# the types that need not be square.
TYPES = {
    "Dense": jnp.asarray,
    "Diagonal": lambda a: tj.Diagonal(a.diagonal()),
    "Symmetric": tj.Symmetric,
    "Triangular": tj.Triangular,
    "Kronecker": lambda a: tj.Kronecker(np.ones((1, 1), a.dtype), a),
    "Banded": banded,
    "Sparse": sparse,
    "LowRank": low_rank,
    "batch": lambda a: tj.Diagonal(np.stack([a.diagonal()] * 2)),
}
OBLONG = {
    **{name: TYPES[name] for name in ("Dense", "Kronecker", "Sparse", "LowRank")},
    "batch": batch_of_low_rank,
}

# The arguments of an operation after the matrix, for `n` rows and a dtype.
NOTHING = lambda n, dtype: ()
VECTOR = lambda n, dtype: (jnp.ones(n, dtype),)
MATRIX = lambda n, dtype: (jnp.ones((n, n), dtype),)
REST = {
    **dict.fromkeys(("solve", "inv_quad_logdet", "lstsq", "solve_triangular"), VECTOR),
    **dict.fromkeys(("quadratic_form", "funm_multiply"), VECTOR),
    **dict.fromkeys(("matmul", "add", "subtract", "multiply", "divide", "pairing"), MATRIX),
    **dict.fromkeys(("kron", "solve_lyapunov", "solve_discrete_lyapunov"), MATRIX),
    "solve_sylvester": lambda n, dtype: (jnp.eye(2, dtype=dtype), jnp.ones((n, 2), dtype)),
}
STATIC = {
    "fractional_matrix_power": (0.5,),
    "matrix_power": (-1,),
    **dict.fromkeys(("funm_hermitian", "funm_multiply"), (jnp.exp,)),
}
# `tj.solve(solver=)` and `tj.logdet(estimator=)` call these, and check their arguments.
INNER = ("solve_by", "logdet_by")
# A singular or indefinite matrix may spoil their values; the others take any matrix.
OF_VALUES = (
    "solve", "inv", "logdet", "slogdet", "det", "cholesky", "pinv", "lstsq", "solve_triangular",
    "condition_number", "factorize", "inv_quad_logdet", "sqrtm", "logm", "matrix_power",
)  # fmt: skip
# Such a matrix, or one with equal eigenvalues, may spoil their derivatives.
DIFFERENTIATED = (
    *OF_VALUES, "eigh", "eigvalsh", "svd", "qr", "lu", "norm", "expm", "fractional_matrix_power",
    "funm_hermitian", "funm_multiply", "solve_sylvester", "solve_lyapunov",
    "solve_discrete_lyapunov",
)  # fmt: skip
# Exactly singular, because rounding errors differ between processors.
SINGLE, ZEROS = np.diag(np.array([1, 0], np.float32)), np.zeros((2, 2), np.float32)
SADDLE = np.array([[1, 2], [2, 1]], np.float32)
SINGULAR = {
    **{name: TYPES[name](SINGLE) for name in ("Dense", "Symmetric")},
    **{name: TYPES[name](ZEROS) for name in ("Diagonal", "Triangular", "batch")},
}
INDEFINITE = {
    "Dense": jnp.asarray(SADDLE),
    "`Symmetric(definite=True)`": tj.Symmetric(SADDLE, definite=True),
}
EQUAL = {name: TYPES[name](2 * np.eye(2, dtype=np.float32)) for name in SINGULAR}

# Systems of three rows for solvers and estimators, by their fault.
SYSTEMS = {
    "definite": np.diag([1, 2, 3]),
    "indefinite": np.array([[1, 2, 0], [2, 1, 0], [0, 0, 1]]),
    "singular": np.ones((3, 3)),
    "not symmetric": np.array([[2, 1, 0], [0, 2, 1], [0, 0, 2]]),
    "nan": np.diag([np.nan, 2, 3]),
    "not square": np.ones((3, 2)),
    "empty": np.zeros((0, 0)),
    "integers": np.diag([1, 2, 3]),
}
TOLERANCES = {"rtol": 1e-5, "atol": 1e-5}
SOLVERS = {
    "CG": lineax.CG(**TOLERANCES),
    "CG, one step": lineax.CG(**TOLERANCES, max_steps=1),
    "GMRES": lineax.GMRES(**TOLERANCES),
    "BiCGStab": lineax.BiCGStab(**TOLERANCES),
    "LSMR": lineax.LSMR(**TOLERANCES),
    "Normal(CG)": lineax.Normal(lineax.CG(**TOLERANCES)),
}


def outcome(op, args):
    """Return the error of tanjax for a call, or the dtypes of its result."""
    call = lambda *args: op(*args, *STATIC.get(op.name, ()))
    try:
        with tj.densify("allow"):
            result = jax.eval_shape(call, *args)
    except Exception as error:
        if not isinstance(error, OURS) or not str(error).startswith(f"{op.name}:"):
            raise AssertionError(f"{op.name}{args}: no error of ours by its name") from error
        return f"`{type(error).__name__}`"
    return ", ".join(dict.fromkeys(str(v.dtype) for v in jax.tree.leaves(result)))


def merged(answers):
    """Return one answer for all types, or the most common one and those of the other types."""
    groups = {}
    for kind, answer in answers.items():
        groups.setdefault(answer, []).append(kind)
    common, *others = sorted(groups, key=lambda answer: -len(groups[answer]))
    return "<br>".join([common, *(f"{', '.join(groups[o])}: {o}" for o in others)])


def of_types(op, types, matrix, rest):
    return merged({kind: outcome(op, (make(matrix), *rest)) for kind, make in types.items()})


def rest_of(op, n, dtype=np.float32):
    return REST.get(op.name, NOTHING)(n, dtype)


def taken(answer):
    return answer if "Error" in answer else "as any other"


def not_square(op):
    return taken(of_types(op, OBLONG, np.ones((2, 3), np.float32), rest_of(op, 2)))


def does_not_fit(op):
    if op.name not in REST:
        return taken(outcome(op, (jnp.ones(3, jnp.float32),)))
    return taken(of_types(op, TYPES, np.eye(2, dtype=np.float32), rest_of(op, 3)))


def empty(op):
    return of_types(op, TYPES, np.zeros((0, 0), np.float32), rest_of(op, 0))


def integers(op):
    return of_types(op, TYPES, np.eye(2, dtype=np.int32), rest_of(op, 2, np.int32))


def mixed(op):
    rest = rest_of(op, 2, np.complex64)
    return of_types(op, TYPES, np.eye(2, dtype=np.float32), rest) if rest else "-"


def values(op, arrays):
    """Return the kind of the entries of a result, for arrays by name of type."""
    answers = {}
    for kind, a in arrays.items():
        if "Error" in outcome(op, (a, *rest_of(op, 2))):
            continue
        with tj.densify("allow"):
            result = op(a, *rest_of(op, 2), *STATIC.get(op.name, ()))
            if op is tj.factorize:
                result = result.solve(jnp.asarray([1, 2], jnp.float32))
        answers[kind] = kind_of_numbers(jax.tree.leaves(result))
    return merged(answers)


LARGE = 1e5


def kind_of_numbers(leaves):
    numbers = np.concatenate([np.ravel(v) for v in leaves]).real
    found = {
        "nan": np.isnan(numbers),
        "inf": numbers > LARGE,  # rounding differs between processors
        "-inf": numbers < -LARGE,
    }
    bad = [name for name, where in found.items() if where.any()]
    return " and ".join(bad) or "finite"


def sum_of_sines(op, a):
    """Return a loss that depends on every entry of a result."""
    result = op(a, *rest_of(op, 2), *STATIC.get(op.name, ()))
    if op is tj.factorize:
        result = result.solve(jnp.asarray([1, 2], jnp.float32))
    dense = jax.tree.map(tj.destructure, result, is_leaf=tj.rules.is_structured)
    entries = [v for v in jax.tree.leaves(dense) if jnp.issubdtype(v.dtype, jnp.inexact)]
    return sum(jnp.sum(jnp.sin(jnp.real(v))) for v in entries)


def gradients(op, arrays):
    """Return the kind of the entries of a gradient; `tj.grad` must return the same."""
    answers, loss = {}, functools.partial(sum_of_sines, op)
    for kind, a in arrays.items():
        if "Error" in outcome(op, (a, *rest_of(op, 2))):
            continue
        with tj.densify("allow"):
            found = kind_of_numbers(jax.tree.leaves(jax.grad(loss)(a)))
            # Rounding decides between nan and inf.
            answers[kind] = found if found == "finite" else "not finite"
            natural = tj.destructure(tj.grad(loss)(a))
        if (answers[kind] == "finite") != (kind_of_numbers([np.asarray(natural)]) == "finite"):
            raise AssertionError(f"{op.name} of {kind}: `tj.grad` gives other numbers.")
    return merged(answers)


def system(name):
    """Return a matrix and a right-hand side of one kind of system."""
    matrix = jnp.asarray(SYSTEMS[name], np.int32 if name == "integers" else np.float32)
    return matrix, jnp.arange(1, matrix.shape[0] + 1, dtype=matrix.dtype)


def answer(call):
    """Return the error of a call by the name of its class, or the kind of its numbers."""
    try:
        return kind_of_numbers(jax.tree.leaves(call()))
    except OURS as error:
        return f"`{type(error).__name__}`"
    except Exception as error:  # raised by a running program
        if "did not reach its tolerance" not in str(error):
            raise
        return "error"


def solved(solver, name):
    """Return the answer of a solver to a system; check that the gradient is no better."""
    a, b = system(name)
    said = answer(lambda: tj.solve(a, b, solver=solver))
    if said == "finite":
        left = a @ tj.solve(a, b, solver=solver) - b
        said = "solved" if bool(jnp.all(abs(left) < 1e-3)) else "least squares"
    elif said == "`ConvergenceError`":
        assert answer(lambda: tj.solve(a, b, solver=solver, throw=False)) == "nan"
        assert answer(lambda: jax.jit(lambda a: tj.solve(a, b, solver=solver))(a)) == "error"
    if name not in ("integers", "empty", "not square"):
        bar = answer(lambda: jax.grad(lambda a: tj.solve(a, b, solver=solver).sum())(a))
        assert bar == ("finite" if said in ("solved", "least squares") else "error"), (name, bar)
    return said


def estimated(name, change):
    """Return the kind of `logdet` by an estimator, or of its gradient."""
    estimator = tj.bridges.matfree.Lanczos(3, 4, jax.random.key(0))
    return answer(lambda: change(lambda a: tj.logdet(a, estimator=estimator))(system(name)[0]))


SHAPES = {
    "not square": not_square,
    "does not fit": does_not_fit,
    "empty": empty,
    "integers": integers,
    "mixed": mixed,
}
NUMBERS = {
    "singular": lambda op: values(op, SINGULAR),
    "indefinite": lambda op: values(op, INDEFINITE),
}
BARS = {
    "singular": lambda op: gradients(op, SINGULAR),
    "indefinite": lambda op: gradients(op, INDEFINITE),
    "equal eigenvalues": lambda op: gradients(op, EQUAL),
}
OF_SYSTEMS = {k: functools.partial(lambda name, s: solved(SOLVERS[s], name), k) for k in SYSTEMS}
ESTIMATES = {
    "value": lambda name: estimated(name, lambda f: f),
    "gradient": lambda name: "-" if name == "integers" else estimated(name, jax.grad),
}


def table(rows, columns):
    """Return a Markdown table; `columns` are functions of a row."""
    lines = [["", *columns], ["---"] * (len(columns) + 1)]
    lines += [[called(row), *(column(row) for column in columns.values())] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def called(row):
    return f"`{row.name}`" if isinstance(row, tj.rules.Operation) else row


def page():
    """Return the text of the page."""
    ours = [op for op in operations() if op.name not in INNER]
    with_values, differentiated = (
        [op for op in ours if op.name in names] for names in (OF_VALUES, DIFFERENTIATED)
    )
    tables = {
        "shapes": table(ours, SHAPES),
        "values": table(with_values, NUMBERS),
        "gradients": table(differentiated, BARS),
        "solvers": table(SOLVERS, OF_SYSTEMS),
        "estimators": table(SYSTEMS, ESTIMATES),
    }
    return renewed(PAGE, tables)


if __name__ == "__main__":
    write_or_check(PAGE, page(), sys.argv[1:])
