"""Find a piece of Python by its structure, and put another into its place.

A pattern is an expression, a statement or an entry of a dictionary, as source. White space, line breaks,
quotes, parentheses that change nothing, comments and the order of keyword arguments do not count. A name that
the code searched does not have matches any name, everywhere the same one: renaming a variable there leaves
the pattern true. `...` as the last argument of a call stands for any further arguments, and as the body of a
statement for any body; where both sides of a replacement have it, what it stood for is kept.
"""

import ast
import builtins
from typing import Any, NamedTuple

LEFT_OUT = {"ctx", "kind", "type_comment"}  # of no account to what code does


class Match(NamedTuple):
    """A node that a pattern matches; of a dictionary, which of its entries.

    Attributes
    ----------
    node : what matches, or the dictionary that has the entry.
    entry : the number of that entry; None where a whole node matches.
    names : the name that each of the pattern's own names stands for.
    rests : what each `...` stands for, in order.
    """

    node: ast.AST
    entry: int | None
    names: dict[str, str]
    rests: list[Any]

    @property
    def line(self) -> int:
        """Return the line of the file that the match begins in."""
        whole: Any = self.node
        return (whole if self.entry is None else whole.keys[self.entry]).lineno


def parsed(source: str) -> tuple[ast.AST, bool]:
    """Return the tree of a pattern, and whether it is an entry of a dictionary, in one of its own."""
    try:
        [statement] = ast.parse(source).body
    except SyntaxError:
        return ast.parse("{" + source + "}", mode="eval").body, True
    return statement.value if isinstance(statement, ast.Expr) else statement, False


def matches(source: str, code: ast.AST) -> list[Match]:
    """Return everything in the code that a pattern matches."""
    pattern, is_entry = parsed(source)
    known, found = _names(code), []
    for node in ast.walk(code):
        if not is_entry:
            match = Match(node, None, {}, [])
            if _same(pattern, node, known, match):
                found.append(match)
        elif isinstance(node, ast.Dict):
            for entry, (key, value) in enumerate(zip(node.keys, node.values, strict=True)):
                match = Match(node, entry, {}, [])
                if _same(pattern, ast.Dict([key], [value]), known, match):
                    found.append(match)
    return found


def replaced(tree: ast.Module, match: Match, source: str) -> ast.Module:
    """Return the tree with another piece in place of the match, which has to be of that tree.

    Raises
    ------
    ValueError : the piece has a name that neither itself nor the tree nor Python knows.
    """
    new, is_entry = parsed(source)
    if is_entry != (match.entry is not None):
        raise ValueError(f"{source!r} is an entry of a dictionary, or replaces one, but not both.")
    new = _Filled(match).visit(new)
    if unknown := {*_names(new)} - _names(tree) - _stored(new) - {*dir(builtins)}:
        raise ValueError(f"{source!r} has names that its file does not have: {', '.join(sorted(unknown))}.")
    if match.entry is not None:
        whole: Any = match.node
        keys, values = [*whole.keys], [*whole.values]
        keys[match.entry : match.entry + 1], values[match.entry : match.entry + 1] = new.keys, new.values
        new = ast.Dict(keys, values)
    return ast.fix_missing_locations(_Replacing(match.node, new).visit(tree))


class _Filled(ast.NodeTransformer):
    """Give a replacement the names and the rests of a match."""

    def __init__(self, match: Match) -> None:
        self.names, self.rests = match.names, iter(match.rests)

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self.names.get(node.id, node.id)
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        if node.args and _is_rest(node.args[-1]):
            arguments, keywords = next(self.rests)
            node.args[-1:] = arguments
            node.keywords += keywords
        self.generic_visit(node)
        return node

    def visit_Expr(self, node: ast.Expr) -> Any:
        return next(self.rests) if _is_rest(node.value) else self.generic_visit(node)


class _Replacing(ast.NodeTransformer):
    """Put a new node in place of one."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> Any:
        return self.new if node is self.old else self.generic_visit(node)


def _names(code: ast.AST) -> set[str]:
    """Return the names that code defines or uses, the names of attributes aside."""
    found = set()
    for node in ast.walk(code):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
    return found


def _stored(code: ast.AST) -> set[str]:
    return {
        node.id for node in ast.walk(code) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def _is_rest(node: Any) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...


def _is_any_body(statements: Any) -> bool:
    return len(statements) == 1 and isinstance(statements[0], ast.Expr) and _is_rest(statements[0].value)


def _same(pattern: Any, node: Any, known: set[str], match: Match) -> bool:
    """Whether a node, a list or a value is what the pattern says; the match learns what stands for what."""
    if isinstance(pattern, list):
        if isinstance(node, list) and _is_any_body(pattern):
            match.rests.append(node)
            return True
        pairs = isinstance(node, list) and len(node) == len(pattern)
        return pairs and all(_same(*pair, known, match) for pair in zip(pattern, node, strict=True))
    if type(pattern) is not type(node):
        return False
    if isinstance(pattern, ast.Name) and pattern.id not in known:
        return match.names.setdefault(pattern.id, node.id) == node.id
    if isinstance(pattern, ast.Call):
        return _same_call(pattern, node, known, match)
    if isinstance(pattern, ast.AST):
        fields = [name for name in pattern._fields if name not in LEFT_OUT]
        return all(_same(getattr(pattern, name), getattr(node, name), known, match) for name in fields)
    return pattern == node


def _same_call(pattern: ast.Call, node: ast.Call, known: set[str], match: Match) -> bool:
    if not _same(pattern.func, node.func, known, match):
        return False
    arguments, keywords = node.args, sorted(node.keywords, key=_keyword)
    wanted, named = pattern.args, sorted(pattern.keywords, key=_keyword)
    if wanted and _is_rest(wanted[-1]):
        wanted = wanted[:-1]
        asked = {one.arg for one in named}
        match.rests.append((arguments[len(wanted) :], [one for one in node.keywords if one.arg not in asked]))
        arguments, keywords = arguments[: len(wanted)], [one for one in keywords if one.arg in asked]
    return _same(wanted, arguments, known, match) and _same(named, keywords, known, match)


def _keyword(keyword: ast.keyword) -> str:
    return keyword.arg or ""
