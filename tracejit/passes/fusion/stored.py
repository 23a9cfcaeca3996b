"""Values that a kernel computes and stores in an array: other kernels read them from the array.

Simplification forwards stored values to the readers of the elements: most readers then join the kernel of the
value, and overwritten stores become dead. But a value that a later kernel reads would be written twice, as a
value and as elements of the array. So once the groups are known, readers in other groups read the array
again, unless it is overwritten before:

    v = f(x);  a[1:-1] = v  |  g(v)          =>          v = f(x);  a[1:-1] = v  |  g(a[1:-1])

The function `fits` decides whether the kernels of the readers can do so. Single elements and columns are
still written separately: they are small, and are faster to read contiguously.
"""

# No `from __future__ import annotations`: a named tuple compiles every annotation that is a string.

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from tracejit import ops
from tracejit.ir.graph import Graph, Node, Value
from tracejit.ir.op import ELEMENTWISE
from tracejit.ir.view import View
from tracejit.loopnest.layout import is_fold
from tracejit.loopnest.program import Unfusable
from tracejit.loopnest.regions import disjoint
from tracejit.passes.fusion.free import FreeNodes
from tracejit.passes.fusion.groups import FusionGroup, Partition


def check_stores(
    groups: Sequence[FusionGroup],
    node: Node,
    origins: Iterable[Value],
    free: FreeNodes,
    group_of: Mapping[Node, FusionGroup],
) -> None:
    """Raise `Unfusable` if stores of `groups` cannot be in a kernel with `node`, computed from `origins`.

    Tracing would detect this, too, but more slowly, and most nodes of programs that store single elements
    cannot be fused.
    """

    def store(value: Value) -> Node | None:
        """The store in `groups` that produces `value`, or None."""
        update = free.producers.get(value)
        return (
            update if update is not None and update.op is ops.update and group_of[update] in groups else None
        )

    if not any(map(store, origins)):
        return
    for reader in free.readers(node):
        for position, value in enumerate(reader.inputs):
            update, may_follow = (
                store(value),
                reader.op is ops.view or (reader.op is ops.update and position == 0),
            )
            while update is not None:
                if not may_follow:
                    raise Unfusable("update has no place inside a kernel")
                if not disjoint(update.attrs["view"], reader.attrs["view"], value.type.shape):
                    raise Unfusable("a kernel stores an element once, and does not read it then")
                update = store(update.inputs[0])


class Stored(NamedTuple):
    """A `value` that `group` computes and stores in `array`, from which `view` reads it."""

    value: Value
    group: FusionGroup
    array: Value
    view: View


class ReadBack:
    """The rewrite that lets readers of stored values in other groups read the array."""

    def __init__(
        self,
        free: FreeNodes,
        partition: Partition,
        group_of: dict[Node, FusionGroup],
        fits: Callable[[FusionGroup], bool],
    ):
        self.free, self.partition, self.group_of, self.fits = free, partition, group_of, fits
        self.storages: dict[Value, Value] = {}  # the first base of each chain of updates, by its values
        self.final: dict[Value, Value] = {}  # the contents of storages after the call

    def run(self, graph: Graph) -> None:
        """Rewire the readers of all values that nodes of `graph` store."""
        self.final = {effect.target: effect.value for effect in graph.effects}
        updates = [node for node in graph.nodes if node.op is ops.update]
        for node in updates:
            self.storages[node.output] = self.storages.get(node.inputs[0], node.inputs[0])
        for node in updates:
            stored = self.stored(self.free.producers[node.output])  # the node may have been replaced
            if stored is not None:
                self.rewire(stored)

    def stored(self, update: Node) -> Stored | None:
        """The value that `update` stores, if the same kernel computes it and rows of the array contain it."""
        value, view, group = update.inputs[1], update.attrs["view"], self.group_of[update]
        node = self.free.producers.get(value)
        if node is None or self.group_of.get(node) is not group or not group.is_kernel or group.products:
            return None
        if value in self.free.materialised or view.size < 2 or view.merged().strides[-1] != 1:
            return None
        return Stored(value, group, update.output, view)

    def rewire(self, stored: Stored) -> None:
        """Let readers in other groups read the array, if all of them can."""
        direct = [n for n in self.free.users[stored.value] if self.group_of.get(n) is not stored.group]
        groups = self.readers(direct)
        if not groups or stored.group in groups:
            return
        array, writer, overwriter = self.latest_version(stored, groups)
        if writer in groups or any(
            writer.before & g.bits or (overwriter and overwriter is not g and overwriter.bits & g.before)
            for g in groups
        ):
            return
        if not self.free.leaves(array, set(writer.members.values())):
            return
        read_back = Value(stored.value.type)
        self.free.add(Node(ops.view, (array,), (read_back,), {"view": stored.view}))
        swaps = [(node, _reading(node, stored.value, read_back)) for node in direct]
        self.replace_nodes(swaps)
        if not all(map(self.fits, groups)):
            self.replace_nodes([(new, old) for old, new in swaps])
            return
        for group in groups:
            self.partition.add_dependencies([writer], group)
        if overwriter is not None:
            self.partition.add_dependencies(groups, overwriter)

    def latest_version(
        self, stored: Stored, groups: Sequence[FusionGroup]
    ) -> tuple[Value, FusionGroup, FusionGroup | None]:
        """The latest_version version of the array that contains the value and does not delay `groups`.

        Later stores are included if they do not overlap the value, and are in the same kernel or in one for
        which some of `groups` wait anyway. Returns the array, the group that writes it, and the next that
        overwrites it.
        """
        array, writer = stored.array, stored.group
        while (next_update := self.next_store(array)) is not None:
            group, stores = self.group_of[next_update], [next_update]
            while (following := self.next_store(stores[-1].output)) is not None and self.group_of[
                following
            ] is group:
                stores.append(following)
            shape = array.type.shape
            is_disjoint = all(disjoint(stored.view, store.attrs["view"], shape) for store in stores)
            if not is_disjoint or (group is not writer and not any(group.bits & g.before for g in groups)):
                return array, writer, group
            array, writer = stores[-1].output, group
        return array, writer, self.replacing(array)

    def replacing(self, array: Value) -> FusionGroup | None:
        """The group that may write other contents into the storage of `array`, if there is one."""
        content = self.final.get(self.storages[array], array)
        node = self.free.producers.get(self.storages.get(content, content))
        return None if content is array or node is None else self.group_of.get(node)

    def next_store(self, array: Value) -> Node | None:
        """The update that overwrites `array`, or None."""
        stores = (n for n in self.free.users.get(array, ()) if n.op is ops.update and n.inputs[0] is array)
        return next(stores, None)

    def readers(self, direct: Iterable[Node]) -> list[FusionGroup]:
        """The groups of `direct` readers, or of users of free ones; empty if one is not in a kernel."""
        groups: dict[FusionGroup, None] = {}
        pending = list(direct)
        for node in pending:
            if node in self.free:
                pending.extend(self.free.users.get(node.output, ()))
            elif ELEMENTWISE in node.op.traits or is_fold(node) or node.op is ops.update:
                groups[self.group_of[node]] = None
            else:
                return []
        return list(groups) if all(group.is_kernel for group in groups) else []

    def replace_nodes(self, pairs: Iterable[tuple[Node, Node]]) -> None:
        """Replace nodes, given as pairs (old, new), in the graph and in their groups."""
        for old, new in pairs:
            self.free.replace(old, new)
            group = self.group_of.get(old)
            if group is not None:
                self.group_of[new] = group
                (position,) = [p for p, member in group.members.items() if member is old]
                group.members[position] = new


def _reading(node: Node, old: Value, new: Value) -> Node:
    """Return a copy of `node` that reads `new` instead of `old`."""
    inputs = tuple([new if value is old else value for value in node.inputs])
    return Node(node.op, inputs, node.outputs, node.attrs, node.location)
