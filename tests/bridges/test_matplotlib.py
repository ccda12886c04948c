"""Quantities in Matplotlib: what is drawn, in which unit, under which label."""

import matplotlib
import numpy as np
import pytest
from matplotlib import axes, figure, units as registry

import tanjax as tj
from tanjax.bridges import matplotlib as bridge

second, minute = tj.unit("s"), tj.unit("min")
metre, kilometre = tj.unit("m"), tj.unit("km")
T, X = np.array([0.0, 30.0, 60.0]), np.array([1.0, 2.0, 4.0])


@pytest.fixture
def ax():
    matplotlib.use("Agg")
    with bridge.enabled():
        yield figure.Figure().add_subplot()


def drawn(ax):
    """The points of the first line."""
    return np.asarray(ax.lines[0].get_xydata())


def labels(ax):
    ax.figure.canvas.draw()
    return ax.get_xlabel(), ax.get_ylabel()


def test_plot_labels_the_axes_and_converts_what_comes_later(ax):
    ax.plot(T * second, X * kilometre)
    (later,) = ax.plot(T / 60 * minute, X * 1000 * metre)
    assert labels(ax) == ("s", "km")
    np.testing.assert_allclose(later.get_xydata(), np.stack([T, X], 1), rtol=1e-15)
    np.testing.assert_array_equal(drawn(ax), np.stack([T, X], 1))


def test_changing_the_unit_of_an_axis_moves_lines_and_keeps_a_label_set_by_hand(ax):
    ax.set_xlabel("time")
    ax.plot(T * second, X * kilometre)
    ax.yaxis.set_units("m")
    assert labels(ax) == ("time", "m")
    np.testing.assert_array_equal(drawn(ax)[:, 1], 1000 * X)


@pytest.mark.parametrize("draw", ["plot", "scatter"])
def test_another_dimension_is_refused(ax, draw):
    """By our error, or, where Matplotlib catches it, by one that it causes."""
    getattr(ax, draw)(T * second, X * metre)
    with pytest.raises(TypeError) as caught:
        getattr(ax, draw)(T * second, X * second)
    error = caught.value if draw == "plot" else caught.value.__cause__
    assert isinstance(error, tj.UnitError)
    assert "axis: y, in m (length)" in str(error)
    assert "in s (time)" in str(error)


def test_lists_of_quantities_in_mixed_prefixes(ax):
    ax.plot([0.0 * second, 1.0 * minute], [1.0 * kilometre, 500.0 * metre])
    np.testing.assert_allclose(drawn(ax), [[0.0, 1.0], [60.0, 0.5]], rtol=1e-15)
    points = ax.scatter(list(T * second), X * metre)
    np.testing.assert_allclose(points.get_offsets(), np.stack([T, X / 1000], 1), rtol=1e-15)
    assert labels(ax) == ("s", "km")


def test_errorbar_takes_errors_in_another_prefix(ax):
    drawn = ax.errorbar(T * second, X * kilometre, 100.0 * metre, 0.5 * minute)
    across, upright = (np.array(lines.get_segments()) for lines in drawn.lines[2])
    np.testing.assert_allclose(across[:, 1, 0] - across[:, 0, 0], 60.0)
    np.testing.assert_allclose(upright[:, 1, 1] - upright[:, 0, 1], 0.2, rtol=1e-12)
    assert labels(ax) == ("s", "km")


def test_errors_on_a_scale_with_an_offset_are_differences(ax):
    drawn = ax.errorbar(T * second, tj.Quantity(X, "degC"), tj.Quantity(1.0, "K"))
    upright = np.array(drawn.lines[2][0].get_segments())
    np.testing.assert_allclose(upright[:, :, 1], np.stack([X - 1, X + 1], 1))


def test_hist_bins_quantities_in_the_unit_of_the_axis(ax):
    counts, edges, _ = ax.hist(X * kilometre, [0.0 * metre, 1500.0 * metre, 5000.0 * metre])
    np.testing.assert_array_equal(counts, [1, 2])
    np.testing.assert_array_equal(edges, [0.0, 1.5, 5.0])
    assert labels(ax) == ("km", "")


def test_hist_of_several_data_sets_lying_down(ax):
    data = [X * kilometre, 1000 * X * metre]
    counts, _, _ = ax.hist(data, [0.0, 3.0, 5.0], orientation="horizontal")
    np.testing.assert_array_equal(counts, [[2, 1], [2, 1]])
    assert labels(ax) == ("", "km")


@pytest.mark.parametrize("draw", ["boxplot", "violinplot"])
def test_distributions_label_the_axis_with_the_unit(ax, draw):
    getattr(ax, draw)(X * kilometre)
    assert labels(ax) == ("", "km")
    np.testing.assert_allclose(ax.dataLim.intervaly, [1.0, 4.0])


def test_fill_between(ax):
    area = ax.fill_between(T * second, 0.0 * metre, X * kilometre)
    corners = area.get_paths()[0].vertices
    np.testing.assert_array_equal(corners.max(0), [60.0, 4000.0])
    assert labels(ax) == ("s", "m")


def test_limits_and_marks(ax):
    ax.set_xlim(0.5 * minute, 90 * second)
    ax.plot(T * second, X * metre)
    ax.axhline(0.003 * kilometre)
    ax.set_yticks([1.0 * metre, 0.002 * kilometre])
    assert labels(ax) == ("min", "m")
    np.testing.assert_allclose(ax.get_xlim(), [0.5, 1.5])
    np.testing.assert_allclose(ax.lines[1].get_ydata(orig=False), 3.0)
    np.testing.assert_allclose(ax.get_yticks(), [1.0, 2.0])


def test_dimensionless_and_structured_values(ax):
    ax.plot(X * (metre / kilometre), X)
    ax.scatter(X * (metre / metre), X)
    assert labels(ax) == ("m/km", "")
    ax = ax.figure.add_subplot()
    drawn = ax.plot(tj.Symmetric([[1.0, 2.0], [2.0, 5.0]]) * metre)
    np.testing.assert_array_equal(drawn[1].get_ydata(orig=False), [2.0, 5.0])
    assert labels(ax) == ("", "m")


def test_polar_axes_draw_angles_in_radians(ax):
    ax = ax.figure.add_subplot(projection="polar")
    (line,) = ax.plot(np.array([0.0, 90.0]) * tj.unit("deg"), np.ones(2) * metre)
    np.testing.assert_allclose(line.get_xdata(orig=False), [0.0, np.pi / 2])
    assert labels(ax) == ("", "m")
    with pytest.raises(tj.UnitError, match="axis: theta, in rad"):
        ax.plot(T * second, X * metre)


@pytest.mark.parametrize("draw", ["eventplot", "pie", "imshow"])
def test_methods_without_units_refuse_quantities(ax, draw):
    """No plot loses its units in silence: NumPy's conversion raises."""
    data = np.stack([X, X]) if draw == "imshow" else X
    with pytest.raises(tj.UnitError):
        getattr(ax, draw)(data * metre)


def test_plain_numbers_are_left_alone(ax):
    ax.plot(T, X)
    ax.hist(X)
    ax.errorbar(T, X, 0.1)
    ax.boxplot(X)
    assert labels(ax) == ("", "")
    np.testing.assert_array_equal(drawn(ax), np.stack([T, X], 1))


def test_disabling_undoes_everything():
    before = dict(vars(axes.Axes)), dict(registry.registry)
    with bridge.enabled():
        bridge.enable()  # twice is once
        assert tj.Quantity in registry.registry
        with bridge.enabled():
            pass
        assert tj.Quantity in registry.registry
    assert (dict(vars(axes.Axes)), dict(registry.registry)) == before
