"""Write the API reference, `docs/api`, from the docstrings of public names.

`pages()` gives the text of every page by its file name. What is public is what `__all__` of `tracejit` and of
its public modules lists; a name that stands on no page is an error. ``python -m docs.tools.reference`` writes
the files; `tests/test_reference.py` fails when they are not current.

>>> sorted(pages())[:3]
['arrays.md', 'calculus.md', 'control.md']
"""

from __future__ import annotations

import inspect
import pathlib
import re
import textwrap
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import tracejit as tj
from docs.tools.site import anchors
from tracejit.frontend.arrays import functions
from tracejit.frontend.arrays.public import DECLARED

FOLDER = pathlib.Path(__file__).parent.parent / "api"

# Names of `tj.engine` that serve the compiler, not users: listed with one line, without an example.
INTERNAL = frozenset(
    [
        *("ARENA", "AROUND_TASKS", "COMMUNICATION", "FINISHED", "FRESH", "HOST", "NUMBER", "OVERWRITE"),
        *("READ", "WRITE", "Buffer", "ExhaustedError", "Pool", "Program", "Statistics", "Task", "pool"),
        *("run_here", "workers"),
    ]
)
HIDDEN = frozenset(  # for modules that stand below arrays; distributions as methods
    [
        "tj.NDArray.new",
        *(f"tj.random.Generator.{name}" for name in tj.random.DISTRIBUTIONS),
    ]
)


MADE = frozenset(  # classes that people do not construct: functions make them, or one derives from them
    [
        *(
            "tj.NDArray",
            "tj.Device",
            "tj.Jitted",
            "tj.Spec",
            "tj.KeptGraph",
            "tj.BoundGraph",
            "tj.GraphInterface",
        ),
        *("tj.Drawing", "tj.nn.Module", "tj.data.Prefetch", "tj.kvstore.KVStore", "tj.distributed.Group"),
        *("tj.engine.Profile", "tj.engine.Event", "tj.tree.Structure"),
    ]
)


class Entry(NamedTuple):
    """One public name: how users write it, the object, and whether it is a method or an attribute."""

    name: str
    value: Any
    member: bool = False


class Page(NamedTuple):
    """One page of the reference."""

    file: str
    title: str
    intro: str
    names: list[str]


def _of(module: Any, prefix: str) -> list[str]:
    return [f"{prefix}.{name}" for name in module.__all__]


def _declared(*modules: Any) -> list[str]:
    """The names of `tj` that modules declare, but for other names of functions."""
    known = [d for module in modules for d in DECLARED[module.__name__].values()]
    return sorted(f"tj.{d.name}" for d in known if not d.is_other_name)


def _others() -> list[str]:
    """The other names of functions."""
    return sorted(f"tj.{name}" for name, value in functions.NAMESPACE.items() if f"tj.{name}" not in MAIN)


MAIN = frozenset(_declared(*functions.MODULES))


PAGES = [
    Page(
        "arrays.md",
        "Arrays",
        "An array has a shape, a dtype and a device. Basic indexing returns views that alias, as in NumPy; "
        "integer and boolean arrays as indices copy. All of Python's operators work elementwise, in-place "
        "ones write the array's memory and are seen through all its views. Arrays without dimensions can be "
        "used as numbers.",
        ["tj.NDArray", "tj.Device", "tj.cpu", "tj.gpu", "tj.device", "tj.from_dlpack"],
    ),
    Page("creation.md", "Creating arrays", "", _declared(functions.creation, functions.ranges)),
    Page("dtypes.md", "Dtypes and constants", "", _declared(functions.dtypes)),
    Page(
        "elementwise.md",
        "Elementwise functions",
        "Each is one operator; consecutive ones become one kernel. NumPy's functions of these names may be "
        "called on arrays, too.",
        _declared(functions.elementwise, functions.pointwise),
    ),
    Page(
        "polynomials.md", "Polynomials and windows", "", _declared(functions.polynomials, functions.windows)
    ),
    Page("names.md", "NumPy's other names", "", _declared(functions.attributes) + _others()),
    Page("reductions.md", "Reductions", "", _declared(functions.reductions, functions.scans)),
    Page(
        "statistics.md",
        "Statistics",
        "Averages, quantiles, covariances, histograms, and reductions that leave nan out. All that do not "
        "look at values replay; what is wrong with values of arrays shows when a result is computed.",
        _declared(functions.statistics, functions.quantiles, functions.missing, functions.histograms),
    ),
    Page(
        "sorting.md",
        "Sorting, searching and sets",
        "Sorting is stable unless asked otherwise, and puts nan last. `unique` and the functions of sets but "
        "`isin` look at the values, which makes a traced function piecewise. `nonzero`, `argwhere` and "
        "`flatnonzero` look at the number of elements: each number is a path, recorded once. With `size` "
        "nothing is looked at.",
        _declared(functions.sorting),
    ),
    Page("linear.md", "Products", "", _declared(functions.linear, functions.contraction)),
    Page("linalg.md", "tj.linalg: linear algebra", "", _of(tj.linalg, "tj.linalg")),
    Page("fft.md", "tj.fft: Fourier transforms", "", _of(tj.fft, "tj.fft")),
    Page(
        "manipulation.md",
        "Shapes and taking",
        "",
        _declared(functions.manipulation, functions.movement),
    ),
    Page(
        "calculus.md",
        "Differences, integrals and convolution",
        "",
        _declared(functions.calculus, functions.convolution),
    ),
    Page("joining.md", "Joining, splitting and padding", "", _declared(functions.joining, functions.padding)),
    Page(
        "placing.md",
        "Placing and choosing elements",
        "",
        _declared(functions.placing, functions.applying),
    ),
    Page("grids.md", "Grids and indices", "", _declared(functions.grids, functions.indexers)),
    Page(
        "transformations.md",
        "Tracing and gradients",
        "",
        [
            *("tj.jit", "tj.Jitted", "tj.grad", "tj.value_and_grad", "tj.vjp", "tj.spec", "tj.Spec"),
            *("tj.vmap", "tj.jacobian", "tj.hessian"),
            *("tj.jvp", "tj.linearize", "tj.custom_gradient", "tj.checkpoint"),
            *("tj.pure", "tj.callback", "tj.wait_all", "tj.profile"),
        ],
    ),
    Page(
        "control.md",
        "Loops and branches as functions",
        "Python's `for`, `while` and `if` are traced as they are. Use `tj.range` or `tj.scan` for loops of "
        "many rounds: a few rounds are recorded, not all.",
        ["tj.range", "tj.scan", "tj.fori_loop", "tj.while_loop", "tj.cond", "tj.switch"],
    ),
    Page(
        "graphs.md",
        "Exported graphs",
        "A function is exported once as a graph, which is saved, loaded where the function is not, called "
        "for any batch size, bound to arrays and drawn. [The guide](../guide/graphs.md) shows it.",
        ["tj.export", "tj.load_graph", "tj.KeptGraph", "tj.BoundGraph", "tj.GraphInterface", "tj.Drawing"],
    ),
    Page("nn.md", "tj.nn: neural networks", "", _of(tj.nn, "tj.nn")),
    Page("init.md", "tj.nn.init: initial weights", "", _of(tj.nn.init, "tj.nn.init")),
    Page("optim.md", "tj.optim: optimizers", "", _of(tj.optim, "tj.optim")),
    Page(
        "distributed.md",
        "tj.distributed: several processes",
        "Ranks run the same program, each on its own data. [The guide](../guide/ranks.md) shows it.",
        _of(tj.distributed, "tj.distributed"),
    ),
    Page("kvstore.md", "tj.kvstore: values by key", "", _of(tj.kvstore, "tj.kvstore")),
    Page(
        "random.md",
        "tj.random: random numbers",
        "All functions take a `generator` of one's own, which has them as methods, too: "
        "`tj.random.Generator(7).normal(shape=3)`. Shapes are those of the parameters unless one is given, "
        "as `shape` or by NumPy's name, `size`.",
        _of(tj.random, "tj.random"),
    ),
    Page("data.md", "tj.data: loading ahead", "", _of(tj.data, "tj.data")),
    Page("tree.md", "tj.tree: trees of arrays", "", _of(tj.tree, "tj.tree")),
    Page("io.md", "Saving and loading", "", ["tj.save", "tj.load"]),
    Page(
        "engine.md",
        "tj.engine: the dependency engine",
        "Python functions as tasks that are ordered by what they read and write. The names at the end, which "
        "have no example, serve the compiler.",
        [f"tj.engine.{name}" for name in sorted(tj.engine.__all__, key=INTERNAL.__contains__)],
    ),
    Page(
        "errors.md",
        "Errors and settings",
        "",
        [*_of(tj.errors, "tj.errors"), "tj.TracejitError", "tj.config"],
    ),
]
MODULES = (
    *("data", "distributed", "fft", "linalg", "engine", "errors"),
    *("kvstore", "nn", "optim", "random", "tree"),
)


def resolve(name: str) -> Any:
    """The object that users write as `name`."""
    value: Any = tj
    for part in name.split(".")[1:]:
        value = getattr(value, part)
    return value


def members(entry: Entry) -> Iterator[Entry]:
    """The public methods and attributes of a class that its own package defines; for a module of `tj.nn`,
    only its own: `tj.nn.Module` has the others.
    """
    if not inspect.isclass(entry.value) or issubclass(entry.value, Exception):
        return
    is_layer = issubclass(entry.value, tj.nn.Module) and entry.value is not tj.nn.Module
    names = {*vars(entry.value), "forward"} - {"function"} if is_layer else dir(entry.value)
    for name in sorted(names):
        found = inspect.getattr_static(entry.value, name)
        if name.startswith("_") or not (
            inspect.isfunction(found) or isinstance(found, property | staticmethod | classmethod)
        ):
            continue
        value = found.__func__ if isinstance(found, staticmethod | classmethod) else found
        if f"{entry.name}.{name}" not in HIDDEN:
            yield Entry(f"{entry.name}.{name}", value, True)


def entries() -> Iterator[Entry]:
    """Every public name of the reference, and the members of public classes."""
    for page in PAGES:
        for name in page.names:
            entry = Entry(name, resolve(name))
            yield entry
            yield from members(entry)


def signature(entry: Entry) -> str:
    """The call signature of `entry`; of an attribute, its name."""
    if isinstance(entry.value, property) or not callable(entry.value):
        return entry.name
    try:
        found = inspect.signature(entry.value)
    except ValueError:
        return entry.name
    plain = [
        p.replace(annotation=p.empty, default=_Default(p.default) if p.default is not p.empty else p.empty)
        for p in found.parameters.values()
        if not (entry.member and p.name == "self")
    ]
    if plain and entry.name.startswith("tj.NDArray.") and plain[0].name in ("x", "x1"):
        plain = plain[1:]  # a function as a method
    return f"{entry.name}{found.replace(parameters=plain, return_annotation=found.empty)}"


class _Default:
    """A default value as people write it: never an address."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        shown = repr(self.value)
        return "..." if " at 0x" in shown else shown


def parameters(entry: Entry) -> frozenset[str]:
    """The names that lines of a docstring explain: parameters; of a class or an object, also attributes."""
    value = entry.value
    try:
        found = set(inspect.signature(value).parameters)
    except (TypeError, ValueError):
        found = set()
    if not inspect.isfunction(value):
        found |= {*dir(value), *getattr(value, "__annotations__", ())}
    return frozenset(found)


def markdown(docstring: str, names: frozenset[str] = frozenset()) -> str:
    """A docstring as Markdown: paragraphs, lists of the parameters `names`, sessions as code."""
    blocks = []
    for block in re.split(r"\n\s*\n", inspect.cleandoc(docstring)):
        if block.startswith(">>>"):
            blocks.append(f"```python\n{block}\n```")
        else:
            blocks += _paragraphs(block.replace("``", "`"), names)
    return "\n\n".join(blocks)


ITEM = re.compile(r"([a-z_]\w*(?:, \w+)*):\s+(\S.*)")


def _begins_item(line: str, before: str | None, names: frozenset[str]) -> re.Match[str] | None:
    """The match of a line `name: text` that begins the text of parameters, `before` being the line above.

    A sentence that goes on in this line may have a word and a colon at its beginning, too: an item names
    parameters, and begins a block or follows the end of a sentence or of another item.

    >>> _begins_item("together: one product.", "all examples are done", frozenset(["axis"])) is None
    True
    >>> _begins_item("axis: a dimension.", "A sentence goes on to its", frozenset(["axis"])) is None
    True
    >>> _begins_item("axis: a dimension.", "A sentence.", frozenset(["axis"]))[1]
    'axis'
    """
    item = ITEM.fullmatch(line)
    if item is None or not names.issuperset(item[1].split(", ")):
        return None
    ends = before is None or before.endswith((".", ";", ":")) or before.startswith(" ")
    return item if ends or ITEM.fullmatch(before or "") else None


def _paragraphs(block: str, names: frozenset[str]) -> list[str]:
    """Paragraphs and lists of `name: text` lines of a block; "Raises" and "Returns" begin a paragraph.

    >>> _paragraphs("All is done\\ntogether: once.\\nx: an array.\\ny: another.", frozenset("xy"))
    ['All is done together: once.', '- `x`: an array.\\n- `y`: another.']
    """
    found: list[str] = []
    before = None
    for line in block.splitlines():
        item = _begins_item(line, before, names)
        if item:
            found.append(f"- `{item[1]}`: {item[2]}")
        elif not found or re.match(r"(Raises|Returns|Gives)\b", line):
            found.append(line.strip())
        else:
            found[-1] += " " + line.strip()
        before = line
    joined: list[str] = []
    for text in found:
        wrapped = textwrap.fill(text, 110, subsequent_indent="  " if text.startswith("- ") else "",
                                break_long_words=False, break_on_hyphens=False)  # fmt: skip
        if text.startswith("- ") and joined and joined[-1].startswith("- "):
            joined[-1] += "\n" + wrapped
        else:
            joined.append(wrapped)
    return joined


def first_line(entry: Entry) -> str:
    """The first sentence of the docstring, for tables."""
    if not describes(entry):
        return f"`{entry.value}`" if isinstance(entry.value, int | float | np.dtype | None) else "An object."
    paragraph = inspect.cleandoc(entry.value.__doc__).split("\n\n")[0].replace("``", "`")
    text = " ".join(paragraph.split()).replace("|", "\\|")
    return text.split(". ")[0].rstrip(".") + "."


def describes(entry: Entry) -> bool:
    """Whether the object has a docstring, its own or of its class, unless Python's or NumPy's."""
    value = entry.value
    of_kind = isinstance(value, type | property) or inspect.isfunction(value)
    return (of_kind or type(value).__module__.startswith("tracejit.")) and bool(value.__doc__)


def text_of(entry: Entry) -> str:
    """The text of one name."""
    level = "###" if entry.member else "##"
    if not describes(entry):
        shown = type(entry.value).__name__
        if isinstance(entry.value, np.dtype):
            return f"{level} {entry.name}\n\nThe dtype `{entry.value}`."
        if isinstance(entry.value, int | float | None):
            return f"{level} {entry.name}\n\nThe value `{entry.value!r}`."
        return f"{level} {entry.name}\n\n{_article(shown)} `{shown}`."
    own = getattr(entry.value, "__name__", "")
    if not entry.member and own != entry.name.rsplit(".", 1)[-1] and own in functions.NAMESPACE:
        return f"{level} {entry.name}\n\nAnother name of `tj.{own}`."
    call = signature(entry)
    if entry.name.rsplit(".", 1)[-1] in INTERNAL and entry.name.startswith("tj.engine."):
        return f"{level} {entry.name}\n\n{first_line(entry)}"
    head = f"{level} {entry.name}\n\n"
    if isinstance(entry.value, type) and issubclass(entry.value, Exception):
        bases = ", ".join(f"`{base.__name__}`" for base in entry.value.__bases__)
        return f"{head}Also {bases}.\n\n{markdown(entry.value.__doc__ or '')}"
    is_made = isinstance(entry.value, type) and entry.name in MADE
    is_called = callable(entry.value) and not is_made
    shown = f"```python\n{call}\n```\n\n" if is_called else ""
    return head + shown + markdown(entry.value.__doc__ or "", parameters(entry))


def _article(word: str) -> str:
    return "An" if word[0].lower() in "aeiou" else "A"


def pages() -> dict[str, str]:
    """The text of every page, by file name."""
    texts = {}
    rows = []
    for page in PAGES:
        parts, shown = [f"# {page.title}"], []
        if page.intro:
            parts.append(textwrap.fill(page.intro, 110, break_long_words=False))
        for name in page.names:
            entry = Entry(name, resolve(name))
            inner = [] if name.removeprefix("tj.engine.") in INTERNAL else list(members(entry))
            parts += [text_of(each) for each in (entry, *inner)]
            shown.append(entry)
        texts[page.file] = "\n\n".join(parts) + "\n"
        places = dict(anchors(texts[page.file]))
        for entry in shown:
            rows.append(f"| [`{entry.name}`]({page.file}#{places[entry.name]}) | {first_line(entry)} |")
    texts["index.md"] = (
        "# API reference\n\nEvery public name, as `import tracejit as tj` gives it. These pages are written "
        "from the docstrings\n(`python -m docs.tools.reference`); all examples run as tests.\n\n"
        "| name | what it is |\n|---|---|\n" + "\n".join(rows) + "\n"
    )
    return texts


def main() -> None:
    """Write all pages."""
    FOLDER.mkdir(exist_ok=True)
    texts = pages()
    for file in FOLDER.glob("*.md"):
        if file.name not in texts:
            file.unlink()
    for name, text in texts.items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
