"""The front end for word functions: functions of int64 words.

The executor consists of hundreds of short functions of addresses, counters and truth values. They need no
type inference, and Numba's front end takes twice as long for them as LLVM. This front end walks the syntax
tree of a function once and emits LLVM IR.

    @word_function
    def append(head, record):
        while get(head, 0) != 0:
            head = get(head, 0) + NEXT
        put(head, 0, record)

All variables, arguments and results are words. The language is a subset of Python's:

- Statements: assignments to names, `if`, `while`, `for` over `range` with a positive step, `break`,
  `continue`, `return`, calls. A function that ends without `return` returns 0.
- Expressions: integer arithmetic, comparisons, `in` with a tuple, `and`, `or`, `not`, `a if c else b`. Truth
  values are 0 and 1. Arithmetic wraps around; `//` and `%` round down, and division by 0 is 0.
- Constants: literals, and variables of the module or of an enclosing function, with their attributes. They
  have the value of the time when the function is compiled.
- Calls of word functions, and of everything that Numba can call on this target: intrinsics, C functions,
  subroutines. Their arguments may also be other constants (dtypes), tuples of words, and the results of other
  calls, of any type.

Everything else is a `SyntaxError`. The value of a variable before its first assignment is undefined.
"""

from __future__ import annotations

import ast
import builtins
import functools
import itertools
import linecache
import operator
from collections import ChainMap
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import compiler, funcdesc, typing
from numba.core.compiler_lock import global_compiler_lock
from numba.core.errors import NumbaError
from numba.core.target_extension import target_override

from tracejit.kernels.compiler.code import Library
from tracejit.kernels.compiler.target import FLAGS, NAME, TARGET, Compiler, Subroutine, caller

WORD = ir.IntType(64)

COMPARISONS = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
INSTRUCTIONS = {
    ast.Add: ir.IRBuilder.add,
    ast.Sub: ir.IRBuilder.sub,
    ast.Mult: ir.IRBuilder.mul,
    ast.LShift: ir.IRBuilder.shl,
    ast.RShift: ir.IRBuilder.ashr,
    ast.BitAnd: ir.IRBuilder.and_,
    ast.BitOr: ir.IRBuilder.or_,
    ast.BitXor: ir.IRBuilder.xor,
}
FUNCTIONS = {ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod}
"""The operators that are calls of functions known to Numba."""


class WordFunction(Subroutine):
    """A function of words. Kernels compiled by Numba can call it like any other subroutine."""

    serial_numbers = itertools.count()  # distinguish functions that a factory defines several times

    @functools.cached_property
    def symbol(self) -> str:
        """The name of the function in LLVM IR."""
        return f"{self.py_func.__module__}.{self.py_func.__qualname__}.{next(self.serial_numbers)}"

    @functools.cached_property
    def library(self) -> Library:
        """The LLVM IR of the function."""
        return self.compiled(self.symbol)

    @property
    def arity(self) -> int:
        """The number of arguments."""
        return int(self.py_func.__code__.co_argcount)

    def compiled(self, symbol: str) -> Library:
        """Compile the function under the name `symbol`."""
        context = TARGET.target_context
        context.refresh()
        library: Library = context.codegen().create_library(symbol)
        module = library.create_ir_module(symbol)
        with target_override(NAME), context.push_code_library(library):
            _WordLowering(self.py_func, _declared(module, symbol, self.arity)).lower()
        library.add_ir_module(module)
        library.finalize()
        return library

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Resolve a call from a function that Numba compiles: all arguments are words."""
        for kind in args:
            if not isinstance(types.unliteral(kind), types.Integer | types.Boolean):
                raise TypeError(f"{self.py_func.__name__} takes words, not {kind}")
        return super().get_call_template([types.int64] * len(args), kws)

    def compile(self, sig: Any) -> Any:
        """Enter the function in Numba's tables, where calls of subroutines look it up."""
        if not self.overloads:
            arguments, context = (types.int64,) * self.arity, TARGET.target_context
            descriptor = funcdesc.ExternalFunctionDescriptor(self.symbol, types.int64, arguments)
            library = self.library
            context.insert_func_defn([(caller(descriptor, library), library, arguments)])
            result = compiler.compile_result(
                typing_context=TARGET.typing_context,
                target_context=context,
                entry_point=library,
                signature=typing.signature(types.int64, *arguments),
                library=library,
                fndesc=descriptor,
                objectmode=False,
            )
            self.add_overload(result)
        return self.library


def word_function(function: Callable[..., Any]) -> WordFunction:
    """Declare a function of words, which kernels and other word functions can call."""
    return WordFunction(function, targetoptions=FLAGS, pipeline_class=Compiler)


@global_compiler_lock
def translate(function: WordFunction, symbol: str) -> list[Library]:
    """Translate a word function to unoptimised LLVM IR of a C function named `symbol`.

    Return the function's library, then the libraries of all functions that it calls.
    """
    return function.compiled(symbol).closure()


def _declared(module: ir.Module, symbol: str, arity: int) -> ir.Function:
    """Return the declaration of a function of words in a module."""
    function = module.globals.get(symbol)
    return function or ir.Function(module, ir.FunctionType(WORD, [WORD] * arity), symbol)


@functools.cache
def _definitions(path: str) -> dict[int, ast.FunctionDef]:
    """The functions in a file of source code, by their first lines, decorators included."""
    tree = ast.parse("".join(linecache.getlines(path)), path)
    return {
        min(part.lineno for part in (node, *node.decorator_list)): node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    }


class _WordLowering(ast.NodeVisitor):
    """The lowering of one function. The visit of an expression returns its value, a word."""

    def __init__(self, function: Any, result: ir.Function) -> None:
        self.code, self.result = function.__code__, result
        cells = zip(self.code.co_freevars, function.__closure__ or (), strict=True)
        enclosing = {name: cell.cell_contents for name, cell in cells}
        self.constants = ChainMap(enclosing, function.__globals__, vars(builtins))
        self.builder = ir.IRBuilder(result.append_basic_block("entry"))
        self.variables = {name: self.builder.alloca(WORD, name=name) for name in self.code.co_varnames}
        self.loops: list[tuple[ir.Block, ir.Block]] = []  # the targets of `continue` and `break`

    def lower(self) -> None:
        """Emit the body of the function."""
        for argument, variable in zip(self.result.args, self.variables.values(), strict=False):
            self.builder.store(argument, variable)
        self._statements(_definitions(self.code.co_filename)[self.code.co_firstlineno].body)
        if not self.builder.block.is_terminated:
            self.builder.ret(WORD(0))

    def generic_visit(self, node: ast.AST) -> Any:
        """Reject a node for which there is no method."""
        raise self._error(node)

    def _error(self, node: Any, reason: str = "not supported") -> SyntaxError:
        path = self.code.co_filename
        location = path, node.lineno, node.col_offset + 1, linecache.getline(path, node.lineno)
        return SyntaxError(f"{ast.unparse(node)}: {reason} in a word function", location)

    # --- Statements

    def _statements(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            if not self.builder.block.is_terminated:
                self.visit(statement)

    def _blocks(self, *names: str) -> list[ir.Block]:
        return [self.result.append_basic_block(name) for name in names]

    def visit_Assign(self, node: ast.Assign) -> None:
        match node:
            case ast.Assign([ast.Tuple(targets)], ast.Tuple(values)) if len(targets) == len(values):
                words = [self.visit(value) for value in values]
            case ast.Assign([target], value):
                targets, words = [target], [self.visit(value)]
            case _:
                raise self._error(node)
        for target, word in zip(targets, words, strict=True):
            self._assign(target, word)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._assign(node.target, self._binary(node, node.op, node.target, node.value))

    def _assign(self, target: ast.expr, word: ir.Value) -> None:
        if not isinstance(target, ast.Name):
            raise self._error(target)
        self.builder.store(word, self.variables[target.id])

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring
            self._typed(node.value)

    def visit_Pass(self, node: ast.Pass) -> None:
        pass

    def visit_Return(self, node: ast.Return) -> None:
        self.builder.ret(WORD(0) if node.value is None else self.visit(node.value))

    def visit_If(self, node: ast.If) -> None:
        then, otherwise, end = self._blocks("then", "else", "end")
        self._branch(node.test, then, otherwise)
        for block, statements in ((then, node.body), (otherwise, node.orelse)):
            self.builder.position_at_end(block)
            self._statements(statements)
            self._jump(end)
        self.builder.position_at_end(end)

    def visit_While(self, node: ast.While) -> None:
        header, body, end = self._blocks("while", "body", "end")
        self.builder.branch(header)
        self.builder.position_at_end(header)
        self._branch(node.test, body, end)
        self.builder.position_at_end(body)
        self._loop(node, header, end)

    def visit_For(self, node: ast.For) -> None:
        match node.iter:
            case ast.Call(ast.Name("range"), [stop], keywords=[]):
                bounds = WORD(0), self.visit(stop), WORD(1)
            case ast.Call(ast.Name("range"), [start, stop], keywords=[]):
                bounds = self.visit(start), self.visit(stop), WORD(1)
            case ast.Call(ast.Name("range"), [start, stop, step], keywords=[]):
                bounds = self.visit(start), self.visit(stop), self.visit(step)
            case _:
                raise self._error(node.iter)
        first, limit, growth = bounds
        with self.builder.goto_entry_block():
            counter = self.builder.alloca(WORD)
        self.builder.store(first, counter)
        header, body, end = self._blocks("for", "body", "end")
        self.builder.branch(header)
        self.builder.position_at_end(header)
        word = self.builder.load(counter)
        self.builder.cbranch(self.builder.icmp_signed("<", word, limit), body, end)
        self.builder.position_at_end(body)
        self.builder.store(self.builder.add(word, growth, flags=["nsw"]), counter)
        self._assign(node.target, word)
        self._loop(node, header, end)

    def _loop(self, node: ast.While | ast.For, header: ir.Block, end: ir.Block) -> None:
        """Emit the body of a loop; continue at `end`."""
        if node.orelse:
            raise self._error(node.orelse[0])
        self.loops.append((header, end))
        self._statements(node.body)
        self.loops.pop()
        self._jump(header)
        self.builder.position_at_end(end)

    def _jump(self, block: ir.Block) -> None:
        """Branch to `block`, unless a statement has left the current block."""
        if not self.builder.block.is_terminated:
            self.builder.branch(block)

    def visit_Continue(self, node: ast.Continue) -> None:
        self.builder.branch(self.loops[-1][0])

    def visit_Break(self, node: ast.Break) -> None:
        self.builder.branch(self.loops[-1][1])

    # --- Conditions

    def _branch(self, condition: ast.expr, yes: ir.Block, no: ir.Block) -> None:
        """Branch to `yes` if a condition holds, else to `no`."""
        match condition:
            case ast.BoolOp(operator, [*conditions, last]):
                for earlier in conditions:
                    (following,) = self._blocks("following")
                    targets = (following, no) if isinstance(operator, ast.And) else (yes, following)
                    self._branch(earlier, *targets)
                    self.builder.position_at_end(following)
                self._branch(last, yes, no)
            case ast.UnaryOp(ast.Not(), operand):
                self._branch(operand, no, yes)
            case ast.Compare():
                self.builder.cbranch(self._comparison(condition), yes, no)
            case _:
                self.builder.cbranch(self._is_true(self.visit(condition)), yes, no)

    def _is_true(self, word: ir.Value) -> ir.Value:
        return self.builder.icmp_signed("!=", word, WORD(0))

    def _comparison(self, node: ast.Compare) -> ir.Value:
        """Return the result of a comparison, one bit."""
        match node:
            case ast.Compare(left, [ast.In()], [ast.Tuple(members)]):
                sign, first = "==", self.visit(left)
            case ast.Compare(left, [operator], [right]) if type(operator) in COMPARISONS:
                sign, first, members = COMPARISONS[type(operator)], self.visit(left), [right]
            case _:
                raise self._error(node)
        bits = [self.builder.icmp_signed(sign, first, self.visit(member)) for member in members]
        return functools.reduce(self.builder.or_, bits)

    # --- Expressions

    def visit_Compare(self, node: ast.Compare) -> ir.Value:
        return self.builder.zext(self._comparison(node), WORD)

    def visit_BoolOp(self, node: ast.BoolOp) -> ir.Value:
        """The value of the first operand that decides the result, or of the last one."""
        (end,) = self._blocks("end")
        *deciding, last = node.values
        words = []
        for operand in deciding:
            (following,) = self._blocks("following")
            word = self.visit(operand)
            words.append((word, self.builder.block))
            targets = (following, end) if isinstance(node.op, ast.And) else (end, following)
            self.builder.cbranch(self._is_true(word), *targets)
            self.builder.position_at_end(following)
        word = self.visit(last)
        words.append((word, self.builder.block))
        self.builder.branch(end)
        return self._merged(end, words)

    def visit_IfExp(self, node: ast.IfExp) -> ir.Value:
        then, otherwise, end = self._blocks("then", "else", "end")
        self._branch(node.test, then, otherwise)
        words = []
        for block, expression in ((then, node.body), (otherwise, node.orelse)):
            self.builder.position_at_end(block)
            word = self.visit(expression)
            words.append((word, self.builder.block))
            self.builder.branch(end)
        return self._merged(end, words)

    def _merged(self, end: ir.Block, words: list[tuple[ir.Value, ir.Block]]) -> ir.Value:
        """Continue at `end`; return the word that belongs to its predecessor."""
        self.builder.position_at_end(end)
        result = self.builder.phi(WORD)
        for word, block in words:
            result.add_incoming(word, block)
        return result

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ir.Value:
        match node:
            case ast.UnaryOp(ast.USub(), ast.Constant(int(number))):
                return WORD(-number)
            case ast.UnaryOp(ast.USub(), operand):
                return self.builder.neg(self.visit(operand))
            case ast.UnaryOp(ast.Invert(), operand):
                return self.builder.not_(self.visit(operand))
            case ast.UnaryOp(ast.Not(), operand):
                return self.builder.zext(self.builder.not_(self._is_true(self.visit(operand))), WORD)
        raise self._error(node)

    def visit_BinOp(self, node: ast.BinOp) -> ir.Value:
        return self._binary(node, node.op, node.left, node.right)

    def _binary(self, node: ast.AST, operator: ast.operator, left: ast.expr, right: ast.expr) -> ir.Value:
        words = self.visit(left), self.visit(right)
        if instruction := INSTRUCTIONS.get(type(operator)):
            return instruction(self.builder, *words)
        if function := FUNCTIONS.get(type(operator)):
            return self._call(function, [(word, types.int64) for word in words])[0]
        raise self._error(node)

    def visit_Name(self, node: ast.Name) -> ir.Value:
        if node.id in self.variables:
            return self.builder.load(self.variables[node.id])
        return self.visit_Constant(node)

    def visit_Constant(self, node: ast.expr) -> ir.Value:
        constant = self._constant(node)
        if not isinstance(constant, int):
            raise self._error(node, "not a word")
        return WORD(int(constant))

    visit_Attribute = visit_Constant

    def visit_Call(self, node: ast.Call) -> ir.Value:
        value, kind = self._typed(node)
        if not isinstance(kind, types.Integer | types.Boolean):
            raise self._error(node, "not a word")
        if value.type == WORD:
            return value
        is_signed = isinstance(kind, types.Integer) and kind.signed
        return (self.builder.sext if is_signed else self.builder.zext)(value, WORD)

    # --- Constants and calls

    def _constant(self, node: ast.expr) -> Any:
        """Return the Python object that an expression without local variables stands for."""
        match node:
            case ast.Constant(constant):
                return constant
            case ast.Attribute(owner, name):
                return getattr(self._constant(owner), name)
            case ast.Name(name) if name not in self.variables and name in self.constants:
                return self.constants[name]
        raise self._error(node, "not a constant")

    def _typed(self, node: ast.expr) -> tuple[ir.Value, types.Type]:
        """Return an argument or the result of a call, which need not be a word, with its type."""
        context = TARGET.target_context
        match node:
            case ast.Call(function, arguments, keywords=[]):
                callee = self._constant(function)
                if callee is types.int64 and len(arguments) == 1:
                    return self.visit(arguments[0]), types.int64
                values = [self._typed(argument) for argument in arguments]
                try:
                    return self._call(callee, values)
                except NumbaError as error:
                    raise self._error(node) from error
            case ast.Call():
                raise self._error(node)
            case ast.Tuple(members):
                kind = types.UniTuple(types.int64, len(members))
                words = [self.visit(member) for member in members]
                return context.make_tuple(self.builder, kind, words), kind
            case ast.Name(name) if name not in self.variables:
                constant = self._constant(node)
                if not isinstance(constant, int):
                    return context.get_dummy_value(), TARGET.typing_context.resolve_value_type(constant)
        return self.visit(node), types.int64

    def _call(self, callee: Any, arguments: list[tuple[ir.Value, types.Type]]) -> tuple[ir.Value, types.Type]:
        """Call a word function, a C function, or another function that Numba can call."""
        context, typing_context = TARGET.target_context, TARGET.typing_context
        values, kinds = [value for value, _ in arguments], tuple(kind for _, kind in arguments)
        if isinstance(callee, WordFunction):
            if len(values) != callee.arity:
                raise TypeError(
                    f"{callee.py_func.__name__} takes {callee.arity} arguments, not {len(values)}"
                )
            context.active_code_library.add_linking_library(callee.library)
            function = _declared(self.result.module, callee.symbol, callee.arity)
            return self.builder.call(function, values), types.int64
        if isinstance(callee, types.ExternalFunction):
            result, kinds = callee.sig.return_type, callee.sig.args
            descriptor = funcdesc.ExternalFunctionDescriptor(callee.symbol, result, kinds)
            function = context.declare_external_function(self.result.module, descriptor)
            return context.call_external_function(self.builder, function, kinds, values), result
        kind = typing_context.resolve_value_type(callee)
        signature = typing_context.resolve_function_type(kind, kinds, {})
        return context.get_function(kind, signature)(self.builder, values), signature.return_type
