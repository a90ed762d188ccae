"""A launch that is one of dpbench's own recipes gets what a script cannot say, such as its gate."""

from __future__ import annotations

from typing import Any

from dpbench.config_file import load_config
from dpbench.shell_import.mapped import Mapped

RECIPES = ("wikitext2-gpt2",)
ENOUGH = {
    *("model.num_layers", "model.hidden_size", "model.num_attention_heads", "model.seq_length"),
    *("training.micro_batch_size", "training.global_batch_size", "training.train_iters"),
    *("training.lr", "precision"),
}
"""What a script must say before it is taken for a recipe."""
BECAUSE = {"training.eval_interval": "without it Megatron 0.16 and later crash"}


def complete_from_recipe(mapped: Mapped) -> str | None:
    """Fill keys that the script leaves open from the recipe that agrees with all it says.

    Returns the recipe's name; None when there is none.
    """
    if not mapped.said >= ENOUGH:
        return None
    for name in RECIPES:
        config = load_config(name)
        recipe = config.model_dump()
        compared = mapped.said - {"data.path"}
        if all(get(recipe, key) == own(mapped, key) for key in compared):
            fill(mapped, config.model_dump(exclude_unset=True), name)
            return name
    return None


def fill(mapped: Mapped, recipe: dict[str, Any], name: str) -> None:
    """Add the recipe's keys that are still open."""
    mapped.report.append(f"the launch is the recipe {name}; what it leaves open comes from there")
    for section in ("model", "training", "data", "checks"):
        for key, value in recipe.get(section, {}).items():
            if key not in mapped.sections.get(section, {}):
                dotted = f"{section}.{key}"
                why = f"from the recipe {name}"
                if dotted in BECAUSE:
                    why += f"; {BECAUSE[dotted]}"
                mapped.set(section, key, value, why)


def get(recipe: dict[str, Any], dotted: str) -> object:
    """Return the recipe's value of a key."""
    section, _, key = dotted.partition(".")
    return recipe[section][key] if key else recipe[section]


def own(mapped: Mapped, dotted: str) -> object:
    """Return the script's value of a key."""
    section, _, key = dotted.partition(".")
    return mapped.sections[section][key] if key else mapped.precision
