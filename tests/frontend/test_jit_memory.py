"""A traced call without memory for its results, or for what is between, says which, and on which line."""

import pytest

import tracejit as tj

LARGE = 1 << 24  # an array of LARGE * LARGE numbers fits no address space


def outer(x):
    return x[:, None] * x


def between(x):
    return tj.cumulative_sum(tj.exp(x[:, None] @ x[None]), axis=1).max()


@pytest.mark.parametrize("warm", [False, True], ids=["recorded", "replayed"])
@pytest.mark.parametrize(
    ("body", "told"), [(outer, "float32[16777216,16777216]"), (between, "compute float32[]")]
)
def test_what_has_no_memory_is_told(body, told, warm):
    step, x = tj.jit(body), tj.ones(LARGE)
    if warm:
        step.warm(x)
    for _ in range(2):
        with pytest.raises(tj.errors.AllocationError, match=r"\d{16} bytes") as found:
            step(x)
        assert isinstance(found.value, MemoryError)
        assert told in str(found.value)
        assert __file__ in str(found.value)
    assert float(tj.jit(body)(tj.ones(3)).sum()) > 0
