"""Typical mistakes: each raises a `TracejitError` that names the user's line, and nothing is left behind.

A line of `MISTAKES` is a statement that is wrong. What Python itself refuses (an operator between an array
and text, an argument that is missing) is Python's error.
"""

import numpy as np
import pytest

import tracejit as tj

FILE = "program_of_a_user.py"
MISTAKES = """
x()+tj.ones((2,4))
tj.add(x(),None)
tj.sin("a")
tj.sin(None)
tj.sin({1,2})
tj.sin({"a":1})
tj.sin(i for i in range(3))
tj.asarray("abc")
tj.asarray([[1,2],[3]])
tj.asarray(None)
tj.asarray([None])
tj.asarray(object())
tj.asarray([1,"a"])
tj.asarray(2**70)
tj.asarray([1,2],dtype="flot32")
tj.asarray([1,2],dtype=str)
tj.asarray(np.array(["a"]))
tj.asarray(np.array([object()]))
tj.asarray(np.datetime64("2020-01-01"))
tj.zeros(-1)
tj.zeros((2,-3))
tj.zeros("a")
tj.zeros(2.5)
tj.zeros(None)
tj.zeros((2,None))
tj.zeros(3,dtype="x")
tj.zeros(3,device="tpu")
tj.full(3,"a")
tj.arange("a")
tj.arange(0,10,0)
tj.linspace(0,1,-1)
tj.linspace(0,"a",3)
tj.eye(-1)
tj.eye("a")
x().reshape(5,5)
x().reshape(-1,-1)
x().reshape("a")
x().reshape(2.5)
x().transpose(0,0)
x().transpose(0,5)
tj.transpose(x(),(0,))
tj.squeeze(x(),0)
tj.expand_dims(x(),5)
tj.moveaxis(x(),0,7)
tj.swapaxes(x(),0,9)
tj.concat([x(),v()])
tj.concat([x(),tj.ones((3,5))],axis=0)
tj.concat([])
tj.concat(x(),axis=9)
tj.stack([x(),v()])
tj.stack([])
tj.split(x(),3,axis=1)
tj.broadcast_to(x(),(3,5))
x().sum(axis=2)
x().sum(axis="a")
x().sum(axis=(0,0))
x().sum(axis=1.5)
x().mean(dtype="int32")
tj.max(tj.zeros((0,)))
tj.argmax(tj.zeros((0,)))
tj.argmax(x(),axis=3)
x()@tj.ones((3,4))
tj.matmul(x(),None)
tj.matmul(tj.ones(()),x())
tj.dot(x(),tj.ones(3))
tj.einsum("ij,jk",x(),tj.ones((5,2)))
tj.einsum("ij->k",x())
tj.einsum("i,j",x(),v())
tj.tensordot(x(),v(),axes=5)
tj.outer("a",x())
x()[3]
x()[0,4]
x()[0,0,0]
x()["a"]
x()[1.5]
x()[None,None,5]
x()[[0,9]].numpy()
x()[tj.asarray([0.5])]
x()[tj.asarray([True,False])]
x()[...,...]
x()[{}]
x()[::0]
x().__setitem__(0, tj.ones(7))
x().__setitem__(0, "a")
x().__setitem__(9, 1)
x().__setitem__((0,0), [1,2])
tj.asarray([1,2]).__setitem__(0, 1j)
tj.asarray([1,2]).__iadd__(0.5)
tj.asarray([1,2]).__iadd__(tj.ones(3))
tj.take(v(),9).numpy()
tj.take(v(),[0.5])
tj.take(x(),[0],axis=4)
tj.where(x()>0,x())
tj.where(x()>0,x(),tj.ones(7))
tj.clip(x(),tj.ones(7),None)
x().astype("x")
x().astype("complex64").astype("float32")
tj.asarray([1.0])<<1
~tj.asarray([1.0])
tj.asarray([1])**-1
tj.asarray([True])-tj.asarray([True])
-tj.asarray([True])
tj.less(tj.asarray([1j]),1)
bool(x())
float(x())
int(x())
range(x())
len(tj.ones(()))
list(tj.ones(()))
x().item()
x().item(99)
x().shape=(7,)
tj.sort(x(),axis=5)
tj.argsort("a")
tj.searchsorted(x(),1.0)
tj.unique("a")
tj.top_k(v(),9)
tj.linalg.solve(x(),v())
tj.linalg.inv(x())
tj.linalg.inv(tj.zeros((2,2))).numpy()
tj.linalg.cholesky(-tj.eye(2)).numpy()
tj.linalg.det(x())
tj.linalg.norm(x(),ord="a")
tj.linalg.svd(v())
tj.fft.fft(x(),axis=7)
tj.fft.fft("a")
tj.random.normal(scale=-1.0)
tj.random.normal(shape=-1)
tj.random.uniform(shape="a")
tj.random.integers(5,2,shape=3)
tj.random.seed("a")
tj.nn.softmax(x(),axis=4)
tj.nn.cross_entropy(x(),tj.asarray([0,1]))
tj.nn.cross_entropy(x(),tj.asarray([0,1,9])).numpy()
tj.nn.cross_entropy(x(),tj.ones(3))
tj.nn.conv2d(x(),x())
tj.nn.conv2d(tj.ones((1,3,8,8)),tj.ones((4,2,3,3)))
tj.nn.conv2d(tj.ones((1,3,8,8)),tj.ones((4,3,9,9)))
tj.nn.max_pool2d(tj.ones((1,1,4,4)),0)
tj.nn.dropout(x(),2.0)
tj.nn.layer_norm(x(),5)
tj.nn.one_hot(tj.asarray([0.5]),3)
tj.nn.embedding(tj.asarray([0,99]),x()).numpy()
tj.nn.linear(x(),tj.ones((5,5)))
tj.grad(lambda a: a*2)(x())
tj.grad(lambda a: a.sum())(3)
tj.grad(lambda a: a.sum())("a")
tj.grad(lambda a: a.sum())(tj.asarray([1,2]))
tj.grad(lambda a: 3.0)(x())
tj.grad(lambda a: None)(x())
tj.grad(3)
tj.grad(lambda a: a.sum(),argnums=4)(x())
tj.value_and_grad(lambda a: (a,a))(x())
tj.vjp(lambda a: a*2, x())[1](tj.ones(9))
tj.jit(3)
tj.jit(lambda a: a+tj.ones(9))(x())
tj.jit(lambda a: a[5])(x())
tj.jit(lambda a: tj.zeros(a))(2.5)
tj.optim.sgd({"w":x()},{"w":v()},0.1)
tj.optim.sgd({"w":x()},{"q":x()},0.1)
tj.optim.adam({"w":x()},{"w":x()},None,0.1)
tj.engine.push(3)
tj.tree.map(lambda a,b: a+b,{"a":1},{"b":2})
np.add(x(),"a")
np.cumsum(x(),axis=7)
np.linalg.solve(x(),v())
np.concatenate([x(),v()])
np.sin(x(),casting="no")
np.median(x(),axis=4)
tj.tile(x(),"a")
tj.repeat(x(),-1)
tj.pad(x(),-1)
tj.pad(x(),1,mode="a")
tj.roll(x(),"a")
tj.flip(x(),5)
tj.tril(v()[0])
tj.diag(tj.ones((2,2,2)))
tj.cumulative_sum(x(),axis=9)
tj.meshgrid(x(),x())
tj.spec(2.5)
tj.spec(2,device="tpu")
tj.zeros((1,)*70)
tj.ones((1,)*64).reshape((1,)*65)
tj.finfo("int32")
tj.iinfo(tj.float32)
tj.result_type()
tj.promote_types("float","noo")
tj.apply_along_axis(3,0,x())
tj.vmap(3)
tj.checkpoint(3)
tj.custom_gradient(3)
tj.pure(3)
tj.callback(3)
tj.optim.clip_by_global_norm(x(),-1)
tj.linalg.eigh(x())
tj.random.gamma(-1.0,shape=3)
tj.random.choice(v(),shape=9,replace=False)
tj.nn.attention(tj.ones((2,3,4)),tj.ones((2,3,5)),tj.ones((2,3,5)))
tj.vmap(lambda a,b: a+b)(x(),tj.ones(7))
tj.jvp(lambda a: a,(x(),),(v(),))
tj.export(lambda a: print(float(a)),tj.spec(()))
x().imag=1
x().real=tj.ones(7)
tj.polyval("a",3)
"""


def x():
    return tj.ones((3, 4))


def v():
    return tj.ones(4)


@pytest.mark.parametrize("mistake", MISTAKES.strip().splitlines())
def test_a_mistake_is_told_with_its_line(mistake):
    def run():
        exec(compile(mistake, FILE, "exec"), {"tj": tj, "np": np, "x": x, "v": v})
        tj.wait_all()

    with pytest.raises(tj.TracejitError, match=f"{FILE}:1") as told:
        run()
    assert isinstance(
        told.value, (TypeError, ValueError, LookupError, ArithmeticError, RuntimeError, OSError)
    )
    tj.wait_all()  # nothing else fails


TRACED = [
    ("add", lambda a: a + tj.ones(9)),
    ("reshape", lambda a: a.reshape(5)),
    ("index", lambda a: a[7]),
    ("matmul", lambda a: a @ a),
    ("sum", lambda a: a.sum(axis=4)),
    ("concat", lambda a: tj.concat([a, tj.ones(2)])),
    ("expected a number or an array|expected an array or a number", lambda a: tj.sin("a")),
    ("zeros", lambda a: tj.zeros(2.5)),
]


@pytest.mark.parametrize(("name", "body"), TRACED, ids=[name.split("|")[0] for name, _ in TRACED])
def test_a_mistake_in_a_traced_function_is_told_with_its_line(name, body):
    step, w = tj.jit(body), tj.ones((3, 4))
    for _ in range(2):
        with pytest.raises(tj.TracejitError, match=f"(?s)(?:{name}).*test_mistakes.py"):
            step(w)
    assert w.tolist() == [[1.0] * 4] * 3
