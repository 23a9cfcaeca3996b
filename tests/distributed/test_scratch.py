"""Memory for messages is used again, and never lent twice."""

import numpy as np
import pytest

from tracejit.distributed import scratch


def test_memory_is_lent_once_and_used_again():
    kept = scratch.Scratch()
    one, two = (kept.acquire(np.empty(100, np.float32)) for _ in range(2))
    assert one.dtype == np.float32
    assert one.shape == (100,)
    assert not np.shares_memory(one, two)
    kept.release(one)
    assert np.shares_memory(kept.acquire(np.empty(60, np.float64)), one)  # the next power of two is the same
    assert not np.shares_memory(kept.acquire(np.empty(100, np.float32)), one)


def test_no_more_is_kept_than_a_bound(monkeypatch):
    monkeypatch.setattr(scratch, "MAX_CACHED_BYTES", 1024)
    kept = scratch.Scratch()
    lent = [kept.acquire(np.empty(1024, np.uint8)) for _ in range(3)]
    kept.release(*lent)
    found = [kept.acquire(np.empty(1024, np.uint8)) for _ in range(3)]
    assert sum(np.shares_memory(a, b) for a in lent for b in found) == 1


def test_arrays_behind_one_another():
    kept = scratch.Scratch()
    arrays = [np.arange(3.0), np.arange(2.0)]
    with kept.joined(arrays) as whole:
        np.testing.assert_array_equal(whole, [0, 1, 2, 0, 1])
        whole *= 2
    np.testing.assert_array_equal(np.concatenate(arrays), [0, 2, 4, 0, 2])
    with kept.joined(arrays[:1]) as whole:
        assert whole is arrays[0]

    def fail():
        with kept.joined(arrays) as whole:
            whole *= 2
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    np.testing.assert_array_equal(np.concatenate(arrays), [0, 2, 4, 0, 2])
