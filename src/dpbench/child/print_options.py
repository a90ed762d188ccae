"""Print the options of a Megatron's parser as JSON: `python print_options.py [CHECKOUT]`.

Runs in the training interpreter, on any machine: the parser is built, nothing is parsed. Without
CHECKOUT it is the installed package's. Standard output carries one JSON object and nothing else;
what the imports print goes to standard error. An option: `names`; `arity`, a number, "+" or "*";
`type`, int, float, bool, or null for text and for what only Megatron can read; `choices` as they
are written; `default` and `help` as text; `negated`, the spelling that switches a yes/no flag off.
"""

import argparse
import enum
import importlib.util
import json
import os
import sys

NUMBERS = {int: "int", float: "float", bool: "bool"}


def write_value(value):
    """Return a default or a choice as it is written on the command line."""
    return value.name if isinstance(value, enum.Enum) else str(value)


def arity_of(action):
    """Return how many values an option takes: a number, "+" or "*"."""
    if action.nargs is None:
        return 1
    return action.nargs if action.nargs in ("+", "*") else int(action.nargs)


def describe(action):
    """Return one option of the parser as plain values."""
    names = list(action.option_strings)
    negated = None
    if isinstance(action, argparse.BooleanOptionalAction):
        negated = next((name for name in names if name.startswith("--no-")), None)
    has_default = action.default is not None and action.default is not argparse.SUPPRESS
    return {
        "names": names,
        "arity": arity_of(action),
        "type": NUMBERS.get(action.type),
        "choices": [write_value(one) for one in action.choices] if action.choices else None,
        "default": write_value(action.default) if has_default else None,
        "help": " ".join(action.help.split()) if action.help else None,
        "negated": negated,
    }


def build_parser(checkout):
    """Return the parser with all that the training script adds to it, and where it came from."""
    from megatron.training import arguments

    parser = arguments.add_megatron_arguments(argparse.ArgumentParser(allow_abbrev=False))
    if checkout and importlib.util.find_spec("modelopt"):  # as pretrain_gpt.py does
        from megatron.post_training.arguments import add_modelopt_args

        parser = add_modelopt_args(parser)
    return parser, arguments.__file__


def main():
    """Print the table of the checkout that is named, else of the installed package."""
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    checkout = sys.argv[1] if len(sys.argv) > 1 else None
    sys.path[:1] = [checkout] if checkout else []
    parser, source = build_parser(checkout)
    actions = [action for action in parser._actions if action.option_strings != ["-h", "--help"]]
    json.dump({"source": source, "options": [describe(action) for action in actions]}, output)
    output.close()


if __name__ == "__main__":
    main()
