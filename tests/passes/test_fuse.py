"""fuse: the meaning stays, chains and reductions become one kernel, independent work stays apart."""

import pathlib

import pytest

from tests.graphs import assert_same_meaning, random_graph
from tracejit.ir.verify import verify
from tracejit.passes.fuse import fuse

GOLDEN = pathlib.Path(__file__).parent / "golden"


@pytest.mark.parametrize("seed", range(300))
def test_random_graphs_keep_their_meaning(seed):
    graph = random_graph(seed)
    assert_same_meaning(verify(fuse(graph)), graph, seed)
