"""Finds pipelines: built-in ones by name, all others by their file."""

import importlib
import importlib.util
import pkgutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

from ottla.client.failure import Failed
from ottla.spark import pipelines
from ottla.spark.runner import Pipeline, UsageError, nearest

VARIABLE: Final = "PIPELINE"


def load_builtins() -> dict[str, Pipeline]:
    """Every built-in pipeline."""
    return {name: load_builtin(name) for name in builtin_names()}


def find(name_or_file: str) -> Pipeline:
    if is_file(name_or_file):
        return load(Path(name_or_file))
    names = builtin_names()
    if name_or_file not in names:
        hint = nearest(name_or_file, names).replace("it has", "there are")
        raise UsageError(f"there is no pipeline {name_or_file}: {hint}; a file of your own ends in .py")
    return load_builtin(name_or_file)


def builtin_names() -> list[str]:
    return [module.name for module in pkgutil.iter_modules(pipelines.__path__)]


def load_builtin(name: str) -> Pipeline:
    pipeline = getattr(importlib.import_module(f"{pipelines.__name__}.{name}"), VARIABLE)
    assert isinstance(pipeline, Pipeline), f"the package {name} defines one"
    return pipeline


def is_file(name_or_file: str) -> bool:
    return name_or_file.endswith(".py") or "/" in name_or_file


def load(path: Path) -> Pipeline:
    """A pipeline from a file. Its functions are pickled by value for Spark's workers, which cannot import the file."""
    if not path.is_file():
        raise UsageError(f"there is no file {path}: `ottla pipeline new NAME` writes one")
    module = import_file(path)
    pipeline = getattr(module, VARIABLE, None)
    if not isinstance(pipeline, Pipeline):
        raise UsageError(
            f"{path} has no {VARIABLE} = Pipeline(...): `ottla pipeline new NAME` shows what a pipeline looks like"
        )
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return pipeline


def import_file(path: Path) -> ModuleType:
    name = f"ottla_pipeline_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec, "a file that ends in .py has a loader"
    assert spec.loader
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.absolute()))  # as Python does for a file that it runs
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise Failed(f"{path} is not valid Python ({error.msg}, line {error.lineno})") from None
    return module
