"""Operations that torch's definition by others serves as well as an entry: an explicit list.

An entry would give the same values, dtypes and derivatives in the same time. Torch's kernels refuse
dtypes that its definitions take, so the list has the kinds that the kernels take.
"""

from __future__ import annotations

_REAL, _FLOAT, _SMOOTH, _ANY = (1, 2), (2,), (2, 3), (0, 1, 2, 3)
_LEFT = {
    _REAL: ("mvlgamma relu threshold",),
    _FLOAT: (
        "celu complex elu gelu glu hardshrink leaky_relu log_sigmoid_forward mish",
        "_native_batch_norm_legit_no_training native_group_norm native_layer_norm polar",
        "_prelu_kernel softplus softshrink",
    ),
    _SMOOTH: ("silu",),
    (0, 1, 2): ("isneginf isposinf logit nansum",),
    _ANY: (
        "adaptive_avg_pool1d avg_pool1d col2im",
        "aminmax arange baddbmm batch_norm_backward constant_pad_nd count_nonzero",
        "diagonal_backward elu_backward eye gelu_backward glu_backward hardsigmoid_backward",
        "hardswish_backward hardtanh_backward isin ldexp leaky_relu_backward",
        "log_sigmoid_backward _log_softmax_backward_data logit_backward logspace logsumexp",
        "native_batch_norm_backward native_group_norm_backward",
        "native_layer_norm_backward new_empty_strided new_ones ones_like _prelu_kernel_backward",
        "repeat sgn sigmoid_backward _softmax_backward_data softplus_backward tanh_backward",
        "threshold_backward unfold_backward",
    ),
}
KINDS_OF = {name: kinds for kinds, rows in _LEFT.items() for row in rows for name in row.split()}
"""The kinds of dtypes that torch takes: 0 bool, 1 integer, 2 float, 3 complex."""
