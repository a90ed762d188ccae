"""Checks of what is installed: Python, packages, Megatron and its compiled helpers."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from collections.abc import Callable, Iterator

from packaging.requirements import Requirement

from dpbench.doctor.check import Check, Rule, first_of, passed, skipped
from dpbench.errors import DpbenchError
from dpbench.megatron import HELPERS, Megatron, extension_suffix

SHOWN_BY_NAME = ("torch", "megatron-core")


def check_python() -> Check:
    """Compare the interpreter, which is also the one that trains, with what dpbench supports."""
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    fix = "make a virtual environment with Python 3.12 and install dpbench there"
    return first_of("Python", found, [(sys.version_info < (3, 12), "fail", ">= 3.12", fix)])


def check_packages(
    requirements: list[str] | None, version_of: Callable[[str], str] = importlib.metadata.version
) -> Iterator[Check]:
    """Compare each installed version with its range; one line for all that need no attention."""
    if requirements is None:
        yield skipped("packages", "dpbench itself is not installed, so its ranges are not known")
        return
    fine = 0
    for text in requirements:
        requirement = Requirement(text)
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        check = check_package(requirement, version_of)
        if check.status == "ok" and requirement.name not in SHOWN_BY_NAME:
            fine += 1
        else:
            yield check
    yield passed("packages", f"{fine} more in their ranges")


def check_package(requirement: Requirement, version_of: Callable[[str], str]) -> Check:
    """Compare the installed version of one package with its range."""
    wanted = str(requirement.specifier) or None
    fix = f'pip install "{requirement}"'
    try:
        version = version_of(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return Check(
            name=requirement.name, status="fail", found="not installed", wanted=wanted, fix=fix
        )
    inside = requirement.specifier.contains(version, prereleases=True)
    rules: list[Rule] = [(not inside, "fail", wanted or "any", fix)]
    return first_of(requirement.name, version, rules)


def requirements() -> list[str] | None:
    """Return what dpbench asks for; None when it runs without being installed."""
    try:
        return importlib.metadata.requires("dpbench") or []
    except importlib.metadata.PackageNotFoundError:
        return None


def check_megatron(find: Callable[[], Megatron]) -> tuple[Check, Megatron | None]:
    """Find Megatron and its training script."""
    try:
        megatron = find()
    except DpbenchError as error:
        return Check(name="Megatron", status="fail", found=str(error), fix=error.hint), None
    where = "installed package" if megatron.kind == "pip" else f"checkout {megatron.root}"
    found = f"{megatron.version}, {where}, entry {megatron.script.name}"
    return passed("Megatron", found, version=megatron.version, kind=megatron.kind), megatron


def check_helpers_built(megatron: Megatron) -> Check:
    """Look for Megatron's dataset helpers, compiled for this interpreter."""
    name, suffix = "Megatron helpers", extension_suffix()
    folder = megatron.root / HELPERS
    if (folder / f"helpers_cpp{suffix}").is_file():
        return passed(name, f"built for {suffix.split('.')[1]}")
    others = sorted(path.name for path in folder.glob("helpers_cpp*.so"))
    found = f"none for {suffix}" + (f", only {', '.join(others)}" if others else "")
    if megatron.kind == "checkout":
        fix = f"the first run compiles them; beforehand: make -C {folder} LIBEXT={suffix}"
        return Check(name=name, status="warn", found=found, fix=fix)
    fix = f'pip install --force-reinstall --no-deps "megatron-core=={megatron.version}"'
    return Check(name=name, status="fail", found=found, fix=fix)
