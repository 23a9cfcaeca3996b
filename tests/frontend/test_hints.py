"""What an error about a name that there is not says: what stands for it here."""

import re

import numpy as np
import pytest

import tracejit as tj
from tracejit.frontend.arrays import hints

OWNERS = {"module": tj, "array": tj.NDArray, "random": tj.random}


@pytest.mark.parametrize("owner", OWNERS)
def test_names_of_other_libraries_are_not_here_and_their_remedies_are(owner):
    entries, holder = hints.REMEDIES[owner], OWNERS[owner]
    assert len(entries) > 8
    for name, remedy in entries.items():
        assert not hasattr(holder, name), name
        for path in re.findall(r"\b(?:tj|x|np)(?:\.\w+)+", remedy):
            value = {"tj": tj, "x": tj.ones(2), "np": np}[path.split(".")[0]]
            for part in path.split(".")[1:]:
                value = getattr(value, part)


def test_errors_say_them():
    x = tj.ones(2)
    for call, message in [
        (lambda: tj.cat([x, x]), "module 'tracejit' has no attribute 'cat'; use tj.concat$"),
        (lambda: x.clone(), "'NDArray' object has no attribute 'clone'; use x.copy$"),
        (lambda: x.exp(), r"'exp'; use tj.exp\(x\)$"),
        (lambda: x.mouse, "has no attribute 'mouse'$"),
        (lambda: tj.random.PRNGKey(0), r"'PRNGKey'; use tj.random.Generator\(seed\)$"),
        (lambda: tj.mouse, "module 'tracejit' has no attribute 'mouse'$"),
    ]:
        with pytest.raises(AttributeError, match=message):
            call()
    assert getattr(x, "clone", 3) == 3
    assert "sum" in dir(x)
    assert "clone" not in dir(x)
    assert not hasattr(tj.random, "mouse")


def test_a_missing_name_in_a_trace():
    for wrap in (tj.jit, lambda f: tj.jit(f, strict=True)):
        traced = wrap(lambda x: x * 2 if hasattr(x, "clone") else x + 1)
        for _ in range(2):
            assert traced(tj.ones(2)).tolist() == [2, 2]
        with pytest.raises(AttributeError, match=r"use tj\.top_k"):
            wrap(lambda x: x.topk(1))(tj.ones(2))
