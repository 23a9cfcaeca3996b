"""What type checkers know of public functions; `test_typing.py` compares mypy's reports with the comments.

``# reveals: X`` is what `reveal_type` on that line says, ``# error: code`` an error that is expected there.
"""

from typing import reveal_type

import tracejit as tj

Params = dict[str, tj.NDArray]


@tj.jit
def step(params: Params, x: tj.NDArray, rate: float = 0.1) -> tj.NDArray:
    return x @ params["w"] + params["b"] * rate


@tj.jit(strict=True)
def strict(x: tj.NDArray, *, scale: int) -> tuple[tj.NDArray, int]:
    return x, scale


def loss(params: Params, x: tj.NDArray) -> tj.NDArray:
    return (x @ params["w"]).mean()


def loss_and_logits(params: Params, x: tj.NDArray) -> tuple[tj.NDArray, str]:
    return loss(params, x), "logits"


@tj.pure
def scale_of(n: int, unit: float = 1.0) -> float:
    return unit / n


def half(x: tj.NDArray) -> tj.NDArray:
    return x / 2


def rounds(state: tuple[tj.NDArray, tj.NDArray]) -> tuple[tj.NDArray, tj.NDArray]:
    return state[0] + 1, half(state[1])


def running(total: tj.NDArray, x: tj.NDArray) -> tuple[tj.NDArray, tj.NDArray]:
    return total + x, half(x)


class Model:
    weight: tj.NDArray

    @tj.pure
    def rate(self, epoch: int) -> float:
        return 0.1 / epoch

    @tj.jit
    def forward(self, x: tj.NDArray) -> tj.NDArray:
        return x @ self.weight


def calls(params: Params, x: tj.NDArray, model: Model) -> None:
    reveal_type(step)  # reveals: Jitted[[params: dict[str, NDArray], x: NDArray, rate: float =], NDArray]
    reveal_type(step(params, x))  # reveals: NDArray
    reveal_type(step(params, x, rate=0.5))  # reveals: NDArray
    step(params)  # error: call-arg
    step(params, x, rate="fast")  # error: arg-type
    reveal_type(strict(x, scale=2))  # reveals: tuple[NDArray, int]
    strict(x, 2)  # error: call-arg
    reveal_type(step.explain())  # reveals: str
    reveal_type(step.cache_info().traces)  # reveals: int
    step.warm(params, tj.spec((3, 4)))


def methods(x: tj.NDArray, model: Model) -> None:
    reveal_type(model.forward(x))  # reveals: NDArray
    reveal_type(Model.forward(model, x))  # reveals: NDArray
    reveal_type(model.forward.explain())  # reveals: str
    reveal_type(model.forward.warm(model, tj.spec((3, 4))))  # reveals: None
    reveal_type(model.forward.graph(model, x))  # reveals: Graph
    reveal_type(model.forward.plan(model, x).naive_bytes)  # reveals: int
    reveal_type(model.forward.entry_for(model, x))  # reveals: Path
    model.forward("x")  # error: arg-type
    model.forward(x, x)  # error: call-arg


def functions(x: tj.NDArray) -> None:
    reveal_type(tj.zeros(3))  # reveals: NDArray
    reveal_type(tj.sum(x, axis=0))  # reveals: NDArray
    reveal_type(tj.where(x > 0, x, 0))  # reveals: NDArray
    reveal_type(tj.nn.relu(x))  # reveals: NDArray
    reveal_type(x.sum())  # reveals: NDArray
    reveal_type(tj.random.normal(shape=3))  # reveals: NDArray
    tj.zeros()  # error: call-arg
    tj.sum(x, axes=0)  # error: call-arg
    tj.optim.sgd(x)  # error: call-arg


def gradients(params: Params, x: tj.NDArray) -> None:
    reveal_type(tj.grad(loss)(params, x))  # reveals: dict[str, NDArray]
    reveal_type(tj.value_and_grad(loss)(params, x))  # reveals: tuple[NDArray, dict[str, NDArray]]
    both = tj.value_and_grad(loss_and_logits, has_aux=True)(params, x)
    reveal_type(both)  # reveals: tuple[tuple[NDArray, str], dict[str, NDArray]]
    reveal_type(tj.grad(loss_and_logits, has_aux=True)(params, x))  # reveals: tuple[dict[str, NDArray], str]
    reveal_type(tj.grad(loss, argnums=1)(params, x))  # reveals: Any
    reveal_type(tj.value_and_grad(loss, argnums=(0, 1))(params, x)[0])  # reveals: NDArray
    tj.grad(loss)(params)  # error: call-arg
    value, pull_back = tj.vjp(loss, params, x)
    reveal_type(value)  # reveals: NDArray
    reveal_type(pull_back(value))  # reveals: tuple[dict[str, NDArray], NDArray]
    tj.vjp(loss, params, 3)  # error: arg-type, call-arg
    reveal_type(tj.grad(lambda a: (a * a).sum())(x))  # reveals: Any


def vouched(model: Model) -> None:
    reveal_type(scale_of(3, unit=2.0))  # reveals: float
    scale_of("3")  # error: arg-type
    reveal_type(model.rate(3))  # reveals: float
    model.rate()  # error: call-arg


def control(x: tj.NDArray, params: Params) -> None:
    reveal_type(tj.cond(x.sum() > 0, half, half, x))  # reveals: NDArray
    reveal_type(tj.cond(True, half, lambda x: 0, x))  # reveals: NDArray | int
    tj.cond(True, half, half, params)  # error: arg-type, arg-type
    reveal_type(tj.switch(1, [half, half], x))  # reveals: NDArray
    reveal_type(tj.switch(1, [tj.sin, tj.cos], x))  # reveals: NDArray
    reveal_type(tj.while_loop(lambda x: x.sum() > 1, half, x))  # reveals: NDArray
    reveal_type(tj.while_loop(lambda x: x < 9, half, 0))  # reveals: NDArray
    reveal_type(tj.while_loop(lambda s: s[0] < 9, rounds, (x, x)))  # reveals: tuple[NDArray, NDArray]
    reveal_type(tj.while_loop(lambda s: s[0] < 9, rounds, (0, x)))  # reveals: tuple[NDArray, NDArray]
    reveal_type(tj.fori_loop(0, 3, lambda i, x: half(x), x))  # reveals: NDArray
    reveal_type(tj.fori_loop(0, 3, lambda i, s: rounds(s), (x, x)))  # reveals: tuple[NDArray, NDArray]
    reveal_type(tj.scan(running, 0.0, x))  # reveals: tuple[NDArray, NDArray]
    reveal_type(tj.scan(lambda s, x: (rounds(s), None), (x, x), x)[0])  # reveals: tuple[NDArray, NDArray]
