"""`Record` under the name that files written by earlier versions of `ottla pipeline new` import."""

from ottla.spark.runner.generating import Record

__all__ = ["Record"]
