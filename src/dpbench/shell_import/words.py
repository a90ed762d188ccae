"""A word as it stands in the script -> the words that bash would make of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from dpbench.shell_import import lexer
from dpbench.shell_import.alterations import Parameter
from dpbench.shell_import.arithmetic import evaluate
from dpbench.shell_import.braces import expand_braces
from dpbench.shell_import.lexer import Unreadable
from dpbench.shell_import.parameters import expand_parameter, read_parameter
from dpbench.shell_import.state import Memory, State, Value, as_text
from dpbench.shell_import.syntax import CLOSE, OPEN, show_placeholder

NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]", re.ASCII)
ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"', "r": "\r", "e": "\x1b", "a": "\a"}
LITERAL = re.compile(r"[^\\'\"`$]+")
PATTERN_SPECIAL = re.compile(r"([*?\[\]\\])")


@dataclass
class Fields:
    """The words made so far; `open` tells whether the last one still grows."""

    split: bool
    pattern: bool = False
    words: list[str] = field(default_factory=list)
    open: bool = False
    separators: str = " \t\n"

    def add(self, text: str, *, quoted: bool) -> None:
        """Append text that is not split."""
        if self.pattern and quoted:
            text = PATTERN_SPECIAL.sub(r"\\\1", text)
        if self.open:
            self.words[-1] += text
        else:
            self.words.append(text)
            self.open = True

    def add_expansion(self, text: str) -> None:
        """Append the outcome of an unquoted expansion, split at blanks."""
        if not self.split:
            if text or not self.open:
                self.add(text, quoted=False)
            return
        if self.separators != " \t\n" and text:
            raise Unreadable("words are split where a changed IFS says")
        for piece in re.findall(r"[ \t\n]+|[^ \t\n]+", text):
            if piece.isspace():
                self.open = False
            else:
                self.add(piece, quoted=False)

    def add_list(self, items: list[str], *, quoted: bool) -> None:
        """Append the elements of `$@` or of an array, each a word of its own."""
        if not self.split:
            self.add(" ".join(items), quoted=quoted)
            return
        for index, item in enumerate(items):
            if index:
                self.open = False
            if quoted:
                self.add(item, quoted=True)
            else:
                self.add_expansion(item)


@dataclass
class Expander:
    """Expands words in a state; `substitute` gives the output of `$(...)`, or a hole."""

    memory: Memory
    state: State
    substitute: Callable[[str, int], str]

    def expand(self, word: str, line: int) -> list[str]:
        """Return the words that one argument becomes."""
        if "{" in word and len(spread := expand_braces(word)) > 1:
            return self.expand_all(spread, line)
        separators = as_text(self.state.variables.get("IFS", " \t\n"))
        fields = Fields(split=True, separators=separators)
        self.scan(word, line, fields, quoted=False)
        if fields.words and re.search(r"[*?]", lexer_literal(word)):
            why = "a pattern of file names; write the names out"
            return [self.memory.hole(line, word, why)]
        if word.startswith("~") and fields.words:
            why = "the home folder is not known; write the path out"
            fields.words[0] = self.memory.hole(line, word, why)
        return [self.mark_placeholder(made, line) for made in fields.words]

    def expand_all(self, words: list[str], line: int) -> list[str]:
        """Return the words that several arguments become."""
        return [made for word in words for made in self.expand(word, line)]

    def one(self, word: str, line: int, *, pattern: bool = False, quoted: bool = False) -> str:
        """Return the word without splitting: a value, a pattern, or the body of a heredoc."""
        fields = Fields(split=False, pattern=pattern)
        self.scan(word, line, fields, quoted=quoted)
        text = fields.words[0] if fields.words else ""
        return self.mark_placeholder(self.memory.check_size(text, line), line)

    def mark_placeholder(self, text: str, line: int) -> str:
        """Make a hole of text that holds a `<placeholder>`."""
        if OPEN not in text:
            return text
        shown = re.search(f"{OPEN}[^{CLOSE}]*{CLOSE}", text)
        what = show_placeholder(shown[0] if shown else text)
        return self.memory.hole(line, what, "a placeholder that nobody filled in")

    def scan(
        self, text: str, line: int, fields: Fields, *, quoted: bool, loose: bool = False
    ) -> None:
        """Add the meaning of text to the fields; `loose` text is itself split at blanks."""
        self.memory.step(line)
        position = 0
        while position < len(text):
            here = line + text.count("\n", 0, position) if "\n" in text else line
            character = text[position]
            if match := LITERAL.match(text, position):
                literal, position = match[0], match.end()
            elif character == "\\":
                literal, position = text[position + 1 : position + 2], position + 2
                if literal == "\n":
                    continue
                if quoted and literal not in '$`"\\':
                    literal = "\\" + literal
                fields.add(literal, quoted=True)
                continue
            elif character == "'" and not quoted:
                end = lexer.find(text, "'", position + 1)
                fields.add(text[position + 1 : end], quoted=True)
                position = end + 1
                continue
            elif character == '"' and not quoted:
                end = lexer.skip_double_quoted(text, position)
                self.scan_quoted(text[position + 1 : end - 1], here, fields)
                position = end
                continue
            elif character in "$`":
                position = self.scan_dollar(text, position, here, fields, quoted=quoted)
                continue
            else:
                literal, position = character, position + 1
            if loose:
                fields.add_expansion(literal)
            else:
                fields.add(literal, quoted=quoted)
        if fields.words:
            self.memory.check_size(fields.words[-1], line)

    def scan_quoted(self, text: str, line: int, fields: Fields) -> None:
        """Add double-quoted text: an empty word unless it holds only an empty list."""
        before = len(fields.words), fields.open
        self.scan(text, line, fields, quoted=True)
        is_list = re.fullmatch(r"\$(@|\{(\w+\[@\]|@)(:.*)?\})", text)
        if before == (len(fields.words), fields.open) and not is_list:
            fields.add("", quoted=True)

    def scan_dollar(
        self, text: str, position: int, line: int, fields: Fields, *, quoted: bool
    ) -> int:
        """Add what an expansion at `position` gives; return the position after it."""
        end = lexer.skip_piece(text, position, quoted=quoted)
        piece = text[position:end]
        if piece.startswith("`"):
            value = self.substitute(re.sub(r"\\([`$\\])", r"\1", piece[1:-1]), line)
        elif piece.startswith("$((") and piece.endswith("))"):
            value = self.arithmetic(piece[3:-2], line)
        elif piece.startswith("$["):
            value = self.arithmetic(piece[2:-1], line)
        elif piece.startswith("$("):
            value = self.substitute(piece[2:-1], line)
        elif piece.startswith("${"):
            self.add_parameter(read_parameter(piece[2:-1]), line, fields, quoted=quoted)
            return end
        elif piece.startswith("$'"):
            fields.add(unescape(piece[2:-1]), quoted=True)
            return end
        elif piece.startswith('$"'):
            self.scan_quoted(piece[2:-1], line, fields)
            return end
        elif match := NAME.match(text, end):
            self.add_parameter(Parameter(match[0]), line, fields, quoted=quoted)
            return match.end()
        else:
            fields.add("$", quoted=True)
            return end
        if quoted:
            fields.add(value, quoted=True)
        else:
            fields.add_expansion(value)
        return end

    def add_parameter(
        self, parameter: Parameter, line: int, fields: Fields, *, quoted: bool
    ) -> None:
        """Add what `${...}` gives."""
        outcome = expand_parameter(parameter, self, line)
        if outcome.instead is not None:  # the word of :- or :+, in the quotes around it
            self.scan(outcome.instead, line, fields, quoted=quoted, loose=not quoted)
        elif isinstance(outcome.value, list):
            fields.add_list(outcome.value, quoted=quoted)
        elif quoted:
            fields.add(outcome.value, quoted=True)
        else:
            fields.add_expansion(outcome.value)

    def arithmetic(self, text: str, line: int) -> str:
        """Return the value of an arithmetic expression; assignments in it are made."""
        expression = self.one(text.replace('"', ""), line, quoted=True)
        if self.memory.holes_in(expression):
            return re.sub("^.*?(\x01\\d+\x02).*$", r"\1", expression, flags=re.DOTALL)
        return str(evaluate(expression, self, line))

    def value_of(self, name: str, line: int) -> Value | None:
        """Return the value of a variable; None when nothing sets it."""
        if name in self.state.hidden:
            return None
        return self.state.variables.get(name)

    def assign(self, name: str, value: Value) -> None:
        """Set a variable, unless it was given as --var."""
        if name not in self.memory.pinned:
            self.state.variables[name] = value
            self.state.hidden -= {name}


def lexer_literal(word: str) -> str:
    """Return the characters of a word that are neither quoted nor expanded."""
    kept, position = "", 0
    while position < len(word):
        end = lexer.skip_piece(word, position)
        if end == position + 1 and word[position] != "$":
            kept += word[position]
        elif (match := NAME.match(word, end)) and word[position] == "$" and end == position + 1:
            end = match.end()
        position = end
    return kept


def unescape(text: str) -> str:
    """Return what `$'...'` stands for."""
    return re.sub(r"\\(.)", lambda match: ESCAPES.get(match[1], match[0]), text, flags=re.DOTALL)
