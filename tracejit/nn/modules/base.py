"""Modules: callable objects that contain parameters and submodules.

A module's parameters are the floating arrays among its attributes, in lists, tuples and dicts among them, and
in its submodules, except arrays listed in `buffers`. As a pytree, a module is the dict of its named
parameters: gradients with respect to a module, and the state of an optimizer, are such dicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from tracejit.errors import ArgumentError, ShapeError, locate
from tracejit.frontend.arrays import dispatch
from tracejit.frontend.arrays.ndarray import NDArray
from tracejit.frontend.python import kinds
from tracejit.frontend.recording.location import user_location
from tracejit.nn.walk import arrays_of, modules_of

kinds.treat_like_users(__name__)

M = TypeVar("M", bound="Module")


class Module:
    """A layer or net with parameters, which is callable; subclasses assign parameters and define `forward`.

    The class attribute `buffers` names arrays that are not parameters, such as running means. `training`
    determines whether dropout is active and running statistics are updated; see `train` and `eval`.

    >>> import tracejit as tj
    >>> class Net(tj.nn.Module):
    ...     def __init__(self):
    ...         self.first, self.second = tj.nn.Linear(2, 8), tj.nn.Linear(8, 1)
    ...
    ...     def forward(self, x):
    ...         return self.second(tj.nn.relu(self.first(x)))
    >>> net, x = Net(), tj.ones((4, 2))
    >>> @tj.jit
    ... def step(net, x):
    ...     loss, grads = tj.value_and_grad(lambda net: (net(x) ** 2).mean())(net)
    ...     tj.optim.sgd(net, grads, 0.1)
    ...     return loss
    >>> bool(step(net, x) > step(net, x))
    True
    >>> list(net.parameters())
    ['first.weight', 'first.bias', 'second.weight', 'second.bias']
    """

    buffers: ClassVar[tuple[str, ...]] = ()
    training: bool = True

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the result of a call of the module.

        Raises NotImplementedError if the class does not define it.

        >>> import tracejit as tj
        >>> tj.nn.Dropout(0.5).eval().forward(tj.ones(2))
        NDArray([1., 1.], dtype=float32)
        """
        raise NotImplementedError(f"{type(self).__name__} does not define forward")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    def __tree__(self) -> dict[str, NDArray]:
        return self.parameters()

    def __repr__(self) -> str:
        parameters = ", ".join(f"{name}: {x.dtype}{list(x.shape)}" for name, x in self.parameters().items())
        return f"{type(self).__name__}({parameters})"

    def parameters(self) -> dict[str, NDArray]:
        """Return the parameters by name, such as ``first.weight`` or ``layers.0.bias``; a shared parameter
        has its first name.

        >>> import tracejit as tj
        >>> list(tj.nn.Linear(2, 3).parameters())
        ['weight', 'bias']
        """
        return {name: x for name, x, is_buffer in arrays_of(self) if not is_buffer}

    def state_dict(self) -> dict[str, NDArray]:
        """Return all arrays by name: parameters, buffers and states of generators. `tj.save` and
        `load_state_dict` accept the result.

        >>> import tracejit as tj
        >>> sorted(tj.nn.BatchNorm(3).state_dict())
        ['bias', 'running_mean', 'running_var', 'weight']
        """
        return {name: x for name, x, _ in arrays_of(self)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copy arrays with the same names and shapes to the module's arrays, in place, converting dtypes.

        Raises ArgumentError if names are missing or unknown, ShapeError if shapes differ.

        >>> import tracejit as tj
        >>> layer = tj.nn.Linear(1, 1)
        >>> layer.load_state_dict({"weight": tj.ones((1, 1)), "bias": tj.zeros(1)})
        >>> layer(tj.asarray([2.0]))
        NDArray([2.], dtype=float32)
        """
        arrays = self.state_dict()
        missing, unknown = arrays.keys() - state.keys(), state.keys() - arrays.keys()
        if missing or unknown:
            message = f"load_state_dict: missing {sorted(missing)}, unknown {sorted(unknown)}"
            raise locate(ArgumentError(message), user_location())
        new = {name: dispatch.as_array("load_state_dict", state[name]) for name in arrays}
        for name, x in arrays.items():
            if new[name].shape != x.shape:
                message = f"load_state_dict: {name} has shape {new[name].shape}, expected {x.shape}"
                raise locate(ShapeError(message), user_location())
        for name, x in arrays.items():
            x[...] = new[name]

    def modules(self) -> dict[str, Module]:
        """Return this module, with the name "", and all its submodules, by name.

        >>> import tracejit as tj
        >>> list(tj.nn.Sequential(tj.nn.Linear(2, 2), tj.nn.Dropout(0.1)).modules())
        ['', 'layers.0', 'layers.1']
        """
        return dict(modules_of(self))

    def train(self: M, mode: bool = True) -> M:
        """Set this module and all its submodules to training mode, or to evaluation mode if `mode` is false;
        return the module.

        >>> import tracejit as tj
        >>> tj.nn.Dropout(0.5).train(False).training
        False
        """
        for module in self.modules().values():
            module.training = mode
        return self

    def eval(self: M) -> M:
        """Set this module and all its submodules to evaluation mode; return the module.

        >>> import tracejit as tj
        >>> tj.nn.Dropout(0.5).eval()(tj.ones(2))
        NDArray([1., 1.], dtype=float32)
        """
        return self.train(False)


__all__ = ["Module"]
