"""Laws of other people's primitives.

A kernel treats powers of two as it treats units, so its author writes a unit signature, and a
function that runs it without overflow. `register_law` refuses meaningless arguments, because a
wrong law gives wrong numbers without a warning.

    register_law("attraction", "m: u, n: u, r: v -> u^2/v^2", evaluate=attraction)

Sharp edge: tanjax cannot check whether a signature is true of a primitive.
`docs/pages/scale_primitives.md` shows how to test it.
"""

from __future__ import annotations

from tanjax._errors import RegistrationError, ScaleError, message
from tanjax._jaxpr_types import Primitive
from tanjax.jaxprs import KINDS, Kind
from tanjax.units.signatures import Many, Monomial, Out, Several, Signature

from . import _rows as rows_of
from ._law import LAWS, Bound, Evaluate, Law, Replay, RowLaw, Work, write

_CALL = "call"


def register_law(
    primitive: Primitive | str,
    signature: str,
    *,
    rows: RowLaw | None = None,
    evaluate: Evaluate | None = None,
    spread: bool = False,
    work: Work = 1.0,
    bound: Bound | None = None,
    replay: Replay | None = None,
    override: bool = False,
    **unknown: object,
) -> None:
    """Register how a primitive treats units and powers of two, and how large its results are.

    **Arguments:** `primitive`: a JAX primitive or its name. `signature`: its units, operand by
    operand, as in `tj.lift.register`; `"call"` if it runs the only jaxpr among its parameters on
    its operands. `evaluate`: `(node, operands) -> results` on `tj.scale.Wide` arrays; `spread`:
    `evaluate` is also right if each entry has its own exponent; `work`: how many elementary
    operations it takes per element; `bound`: the same on `tj.scale.Record`s, None where nothing is
    known. `rows`, `replay`: as in `Law`, if the signature does not suffice. `override`: replace a
    law.
    **Raises:** `ScaleError` if the signature cannot be read, there is a law already, or an argument
    is meaningless. Without `evaluate` and `bound`, values behind the primitive keep exponent 0.

    >>> def times(node, operands):
    ...     a, b = operands
    ...     return [Wide(a.array * b.array, a.exponent + b.exponent)]
    >>> register_law("my_product", "a: u, b: v -> u*v", evaluate=times)
    """
    name = getattr(primitive, "name", primitive)
    if not (isinstance(name, str) and name):
        raise _refused(repr(primitive), "this is no primitive.", "a JAX primitive, or its name.")
    if unknown:
        keys = ", ".join(f"`{key}`" for key in register_law.__kwdefaults__ or ())
        raise _refused(name, f"a law has no {', '.join(map(repr, unknown))}.", f"it has {keys}.")
    functions = {"rows": rows, "evaluate": evaluate, "bound": bound, "replay": replay}
    for key, function in functions.items():
        if function is not None and not callable(function):
            raise _refused(name, f"`{key}` is {function!r}.", "give a function, or leave it out.")
    if not (callable(work) or isinstance(work, int | float)):
        raise _refused(name, f"`work` is {work!r}.", "give a number, or a function.")
    if name in LAWS and not override:
        raise _refused(name, f"there is a law already: {LAWS[name]}.", "pass `override=True`.")
    if signature == _CALL:
        signature, functions["rows"] = "", rows or rows_of.nested
        KINDS[name] = Kind.CALL
    else:
        _check(name, signature)
    form = evaluate if spread else None
    write(name, Law(signature=signature, spread=form, work=work, **functions))  # type: ignore[arg-type]


def _check(name: str, text: str) -> None:
    """Refuse a signature that cannot be read, or whose results have units of no operand."""
    hint = 'write operands and results, as in "a: u, b: v -> u*v".'
    try:
        signature = Signature.parse(text)
    except (RegistrationError, ValueError, TypeError, AttributeError, ZeroDivisionError) as error:
        raise _refused(name, f"the signature {text!r} cannot be read: {error}", hint) from error
    roles = [role for _, role in signature.roles]
    roles += [signature.variadic[1]] if signature.variadic else []
    missing = _letters(signature.out) - {role.letter for role in roles}
    if missing:
        what = ", ".join(f"`{letter}`" for letter in sorted(missing))
        raise _refused(name, f"in the signature {text!r}, no operand is in {what}.", hint)


def _letters(out: Out) -> set[str]:
    """Return the letters that results are made of."""
    if isinstance(out, Several):
        return set().union(*map(_letters, out.items))
    if isinstance(out, Many):
        return _letters(out.item)
    return {letter for letter, _ in out.powers} if isinstance(out, Monomial) else set()


def _refused(name: str, what: str, hint: str) -> ScaleError:
    return ScaleError(message(f"register_law: `{name}`: {what}", hint=hint))
