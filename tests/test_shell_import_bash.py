"""Scripts made at random: what the importer reads is what bash passes, or it refuses.

Bash runs them with `torchrun` as a function that prints its arguments. The vocabulary has no
command, redirection or path, so that running them changes nothing.
"""

from __future__ import annotations

import subprocess

from hypothesis import given, settings
from hypothesis import strategies as st

from dpbench.errors import DpbenchError
from dpbench.shell_import.interpreter import Interpreter
from dpbench.shell_import.state import Memory, State
from dpbench.shell_import.syntax import decode, read_script

PRELUDE = "exec 3>&1\ntorchrun() { printf '%s\\0' \"$@\" $'\\n' >&3; }\n"
START = {"n": "1", "A": "ax b", "B": " x/y", "C": ""}
NAMES = st.sampled_from(["A", "B", "C", "n"])
PIECES = st.sampled_from(
    [
        *("x", "--flag", "1", "12", "é", "-", "=", "/", ".", "@", "%", "#", ",", ":", "_"),
        *("\\\\", "\\ ", '\\"', "\\$", "$A", "${B}", '"$A"', '"${C}"', "'q r'", '"p  q"'),
        *("${A:-d e}", '"${B:-$A}"', "${C:+--on $C}", '${C:+--on "$C"}', "${D:-}", "${D-z}"),
        *("${#A}", "${A%b}", "${A##*x}", "${A#*-}", "${A/x/y}", "${A//a/ }", "${A^^}", "${B:1:2}"),
        *("$((n + 2 * 3))", "$(( n * n % 7 ))", "$((n > 2 ? n : 5))", "${LIST[@]}", '"${LIST[@]}"'),
        *('"${LIST[*]}"', "${LIST[1]}", "${#LIST[@]}", '"${LIST[@]:1}"', "${LIST[-1]}"),
        *('"$@"', "$#", "$1", "$*", '"$*"', "$'t\\tu'", "$(echo $A)", '"$(echo "$B  c")"'),
        *("{a,b}", "{1..3}", "]", "!", "^", "+"),
    ]
)
WORDS = st.lists(PIECES, min_size=1, max_size=3).map("".join)
TESTS = st.one_of(
    st.builds("[ {} = {} ]".format, WORDS, WORDS),
    st.builds("[[ {} == {} ]]".format, WORDS, WORDS),
    st.builds('[ -n "{}" ]'.format, NAMES.map("${}".format)),
    st.builds("[[ -z {} || $n -gt {} ]]".format, WORDS, st.integers(0, 5)),
    st.builds("(( n {} {} ))".format, st.sampled_from(["<", ">=", "=="]), st.integers(0, 5)),
    st.sampled_from(["true", "! false", ":"]),
    st.sampled_from(["[ -d /none ]", '[ "$UNSET" = x ]', "! [[ -s /none && $A ]]", "type none"]),
)


LEAVE = st.sampled_from(["break", "continue", "A=left", "shift", "LIST=()"])


def blocks(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    body = st.lists(inner, min_size=1, max_size=3).map("\n".join)
    return st.one_of(
        st.builds("if {}; then\n{}\nelse\n{}\nfi".format, TESTS, body, body),
        st.builds("for A in {} {}; do\n{}\ndone".format, WORDS, WORDS, body),
        st.builds("case {} in\n{}) {} ;;\n*x*|y) {} ;;\nesac".format, WORDS, WORDS, inner, inner),
        st.builds("f() {{\nlocal A=$1\n{}\n}}\nf {} {}".format, body, WORDS, WORDS),
        st.builds("n=0; while (( n < 3 )); do n=$((n+1)); {}; done".format, inner),
        st.builds("( {} )".format, inner),
        st.builds("for B in 1 $C 2; do {} && {}; {}; done".format, TESTS, LEAVE, inner),
        st.builds("g() {{ {} || return 1; {}; }}; g {} && {}".format, TESTS, inner, WORDS, inner),
        st.builds("A=$({}; echo z $1)".format, inner),
        st.builds("{} | :".format, inner),
        st.builds("echo $A | {}".format, inner),
        st.builds("case $UNSET in x) {} ;; *) {} ;; esac".format, inner, inner),
        st.builds("until {}; do {}; break; done".format, TESTS, inner),
        st.builds("for ((n = 0; n < {}; n++)); do {}; done".format, st.integers(0, 3), inner),
        st.builds("C=$(cat <<E\n{}\n $A\nE\n)".format, WORDS),
        st.builds("{} && {{ {}; }} || {}".format, TESTS, inner, inner),
    )


SIMPLE = st.one_of(
    st.builds("{}={}".format, NAMES, WORDS),
    st.builds('{}="{}"'.format, NAMES, st.sampled_from(["$A x", "1", "${B} --f 'g h'", ""])),
    st.builds("{}+={}".format, NAMES, WORDS),
    st.builds("LIST=({} {}\n{} # note\n)".format, WORDS, WORDS, WORDS),
    st.builds("LIST+=({})".format, WORDS),
    st.builds(': "${{{}:={}}}"'.format, NAMES, st.sampled_from(["d", "e f", "$A"])),
    st.builds("eval {}='{}'".format, NAMES, st.sampled_from(["$B", "u v", '"w  $A"'])),
    st.builds("set -- {} {}".format, WORDS, WORDS),
    st.just("shift"),
    st.builds("torchrun {} {}".format, WORDS, WORDS),
)
STATEMENTS = st.lists(st.recursive(SIMPLE, blocks, max_leaves=5), min_size=1, max_size=6)
SCRIPTS = st.builds("{}\ntorchrun {} $A $B".format, STATEMENTS.map("\n".join), WORDS)


def read_by_importer(script: str) -> list[list[str]] | None:
    """Return the arguments of every torchrun; None when something is not known."""
    memory = Memory("made.sh")
    interpreter = Interpreter(memory, State(dict(START) | {"LIST": ["l m", "k"]}, ["p q", "r"]))
    try:
        interpreter.run_script(read_script(script.encode(), "made.sh"))
    except DpbenchError:
        return None
    commands = [each for each in interpreter.commands if each.arguments[0] == "torchrun"]
    unsure = any(
        command.condition or memory.holes_in(word)
        for command in commands
        for word in command.arguments
    )
    if memory.notes or unsure:
        return None
    return [[decode(word, "") for word in command.arguments[1:]] for command in commands]


def read_by_bash(script: str) -> list[list[str]] | None:
    """Return the arguments of every torchrun; None when bash complains."""
    start = "".join(f"{name}={value!r}\n" for name, value in START.items())
    text = PRELUDE + start + "LIST=('l m' k)\n" + script
    ran = subprocess.run(
        ["bash", "-c", text, "made.sh", "p q", "r"],
        env={},
        cwd="/",
        capture_output=True,
        timeout=120,
        check=False,
    )
    if ran.stderr:
        return None
    texts = ran.stdout.decode().split("\n\0")[:-1]
    return [text.split("\0")[:-1] for text in texts]


@settings(max_examples=60)
@given(SCRIPTS)
def test_a_script_that_is_not_refused_means_what_bash_makes_of_it(script: str) -> None:
    mine = read_by_importer(script)
    if mine is None:
        return
    passed = read_by_bash(script)
    if passed is None:
        return
    unique = list(dict.fromkeys(map(tuple, passed)))
    assert list(dict.fromkeys(map(tuple, mine))) == unique
