"""The conditions that check each `Rule` in a replay function, as Python with a field for each operand (see
`text`).
"""

from __future__ import annotations

from tracejit.frontend.signature.program import Rule

CONDITIONS = {
    Rule.IS: "{} is {}",
    Rule.IS_NOT: "{} is not {}",
    Rule.NOT_AMONG: "id({}) not in {}",
    Rule.EQUAL: "{} == {}",
    Rule.EMPTY: "not {}",
    Rule.TYPE: "type({}) is {}",
    Rule.OF_TYPE: "type({0}) is {1} and {0} == {2}",
    Rule.ALIKE: "type({0}) is type({1}) and {0} == {1}",
    Rule.SHOWN_ALIKE: "type({0}) is type({1}) and repr({0}) == {2}",
    Rule.WITHIN: "-{1} < {0} < {1}",
    Rule.LENGTH: "len({}) == {}",
    Rule.KEYS: "tuple({}) == {}",
    Rule.SAME_KEYS: "tuple({0}) == {1} and same_parts(tuple({0}), {1})",
    Rule.KEYS_IN_ANY_ORDER: "{}.keys() == {}",
    Rule.NONE_OF_KEYS: "{}.keys().isdisjoint({})",
    Rule.NO_ATTRIBUTE: "Attributes({}).get({}) is GONE",
    Rule.SAME_ITEMS: "same_items({}, {})",
    Rule.SAME_ARRAY: "same_array({}, {})",
    Rule.FUNCTION: "{0}.__code__ is {1} and {0}.__globals__ is {2} and ({0}.__name__, {0}.__qualname__)"
    " == {3}",
    Rule.STORAGE: "type({0}) is NDArray and {0}._storage is {1}",
    Rule.VIEW: "{0}._view is {1} or {0}._view == {1}",
    Rule.VIEW_BUT_OFFSET: "{0}.shape == {1} and {0}.strides == {2} and {0}.writable is {3}",
    Rule.DTYPE_AND_DEVICE: "{0}.dtype == {1} and {0}.device == {2}",
    Rule.SHAPE_AND_STRIDES: "{0}.shape == {1} and {0}.strides == {2}",
    Rule.SHAPE_AND_DTYPE: "{0}.shape == {1} and {0}.dtype == {2}",
    Rule.DEVICE: "{}.device is {}",
    Rule.DEVICE_IF_CHOSEN: "not {} or {}.device is {}",
}
