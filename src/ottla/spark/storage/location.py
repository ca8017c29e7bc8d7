"""A location of a table: a local path or the URL of a store, as a value that travels to the workers of a Spark job.

    tables/orders   /data/my run   file:///data/orders      a folder, local or on a mount that all workers have
    s3://bucket/orders   s3a://...                          S3 and compatible stores
    gs://bucket/orders                                      Google Cloud Storage
    abfs://container@account.dfs.core.windows.net/orders    Azure; abfss:// too
    hdfs://host:port/orders                                 HDFS, through the libhdfs of an installed Hadoop
    another://...                                           whatever fsspec knows, if it is installed

No JAR is needed: files are written by pyarrow (or fsspec) inside the Python workers, Delta tables by deltalake. A name
in the URL of a store is used literally, as by the stores' own tools. Only `file:` URLs are percent-decoded.

Keys, regions and endpoints come from where these libraries look (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, the role of the
machine, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_KEY, ...) or from the options `storage.*`. Secrets given
by file or variable (`storage.secret.file`, `.env`) are looked up by each process that needs them.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote, urlsplit

from ottla.client.failure import Failed
from ottla.client.secret import resolve

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
FILE: Final = re.compile(r"file:(?://(?:localhost)?)?(/.*)", re.DOTALL)
LOCAL: Final = "file"
KINDS: Final = {
    "s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "gcs": "gs", "abfs": "abfs", "abfss": "abfs", "hdfs": "hdfs",
    "viewfs": "hdfs",
}  # fmt: skip
UNDELTA: Final = re.compile(r"%[0-9A-Fa-f]{2}|[\[\]\\^|]")
OBJECTS: Final = ("s3", "gs", "abfs")  # stores without rename, whose objects appear whole


@dataclass(frozen=True)
class Location:
    scheme: str  # as given; "file" for a local path
    authority: str  # bucket, container@account, or host:port
    path: str  # absolute on this machine and on HDFS; in a bucket a key without a leading slash
    settings: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # has secrets

    @classmethod
    def parse(cls, text: str | Path, settings: Mapping[str, str] | None = None) -> Location:
        """The location of a path or URL. A scheme that cannot be opened here is refused."""
        given = tuple(sorted((settings or {}).items()))
        found = None if isinstance(text, Path) else SCHEME.fullmatch(text)
        if isinstance(text, str) and (file := FILE.fullmatch(text)):
            return cls(LOCAL, "", os.path.abspath(unquote(file[1])))
        if found is None:
            return cls(LOCAL, "", os.path.abspath(text))
        scheme, rest = found[1].lower(), found[2]
        authority, _, path = rest.partition("/")
        here = cls(scheme, authority, path.strip("/"), given)
        if here.kind == "hdfs":
            here = replace(here, path=f"/{here.path}")
        if here.kind in OBJECTS and not authority:
            raise Failed(f"{text} names no bucket: expected {scheme}://bucket/folder")
        if here.kind == "fsspec":
            check_known(scheme)
        return here

    @property
    def kind(self) -> str:
        """What opens it: file, s3, gs, abfs, hdfs or fsspec."""
        return LOCAL if self.scheme == LOCAL else KINDS.get(self.scheme, "fsspec")

    @property
    def local(self) -> Path | None:
        return Path(self.path) if self.scheme == LOCAL else None

    @property
    def name(self) -> str:
        return self.path.rstrip("/").rpartition("/")[2]

    def __str__(self) -> str:
        if self.scheme == LOCAL:
            return self.path
        return f"{self.scheme}://{self.authority}/{self.path.lstrip('/')}"

    def __truediv__(self, name: str) -> Location:
        return replace(self, path=f"{self.path.rstrip('/')}/{name}" if self.path else name)

    # For the libraries that open it.

    def filesystem(self) -> tuple[Any, str]:
        """The pyarrow file system, and this location in it."""
        found, prefix = open_filesystem(self.kind, self.scheme, self.authority, self.settings)
        if self.kind == "fsspec":
            return found, str(found.handler.fs._strip_protocol(str(self)))
        return found, f"{prefix}{self.path}"

    def delta(self) -> tuple[str, dict[str, str]]:
        """In deltalake's form: a URL that it decodes, and its storage options. It decodes some names twice."""
        if trap := UNDELTA.search(self.path):
            raise Failed(
                f"a Delta table cannot be at {self}: deltalake does not accept {trap[0]} in a path; choose another"
            )
        if self.scheme == LOCAL:
            return Path(self.path).as_uri(), {}
        path = quote(self.path.lstrip("/"), safe="/=@+,:;~!$&'()*")
        return f"{self.root}/{path}", self.object_options()

    @property
    def root(self) -> str:
        """The URL of the bucket, with the scheme's common name."""
        return f"{self.kind if self.kind in ('s3', 'gs') else self.scheme}://{self.authority}"

    def object_options(self) -> dict[str, str]:
        """Options of the Rust library behind deltalake and obstore. It also reads the environment."""
        given = resolve(dict(self.settings))
        if self.kind == "s3":
            endpoint = (
                given.get("endpoint") or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
            )
            named = {
                "aws_endpoint": endpoint,
                "aws_region": given.get("region") or region(),
                "aws_access_key_id": given.get("key"),
                "aws_secret_access_key": given.get("secret"),
                "aws_allow_http": "true" if (endpoint or "").startswith("http://") else None,
                "aws_conditional_put": "etag",
            }
        elif self.kind == "gs":
            named = {"google_service_account_key": given.get("secret"), "google_base_url": given.get("endpoint")}
        elif self.kind == "abfs":
            named = {"azure_storage_account_key": given.get("secret"), "azure_endpoint": given.get("endpoint")}
        else:
            named = {}
        return {name: value for name, value in named.items() if value}


def region() -> str:
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"


def check_known(scheme: str) -> None:
    known = ", ".join(f"{name}://" for name in (*KINDS,))
    try:
        from fsspec import available_protocols
    except ModuleNotFoundError:
        raise Failed(
            f"{scheme}:// is not a known kind of storage: give a path, or one of {known}; fsspec knows more: pip "
            "install fsspec"
        ) from None
    if scheme not in available_protocols():
        raise Failed(f"{scheme}:// is not a known kind of storage: give a path, one of {known}, or one of fsspec's")


@cache
def open_filesystem(kind: str, scheme: str, authority: str, settings: tuple[tuple[str, str], ...]) -> tuple[Any, str]:
    """A file system, cached for this process, and the prefix of every path in it."""
    from pyarrow import fs

    given = resolve(dict(settings))
    try:
        if kind == LOCAL:
            return fs.LocalFileSystem(), ""
        if kind == "s3":
            return fs.S3FileSystem(**s3_arguments(given)), f"{authority}/"
        if kind == "gs":
            return fs.GcsFileSystem(**gs_arguments(given)), f"{authority}/"
        if kind == "abfs":
            container, _, host = authority.partition("@")
            account = host.partition(".")[0] or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME", "")
            secret = given.get("secret") or os.environ.get("AZURE_STORAGE_ACCOUNT_KEY")
            return fs.AzureFileSystem(account, secret), f"{container}/"
        if kind == "hdfs":
            host, _, port = authority.partition(":")
            return fs.HadoopFileSystem(host or "default", int(port or 0)), ""
        import fsspec

        return fs.PyFileSystem(fs.FSSpecHandler(fsspec.filesystem(scheme, **given))), ""
    except (OSError, ImportError, ValueError, TypeError) as error:
        raise Failed(f"{scheme}://{authority} cannot be opened ({first_line(error)})") from None


def s3_arguments(given: Mapping[str, str]) -> dict[str, Any]:
    endpoint = given.get("endpoint") or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    arguments: dict[str, Any] = {"region": given.get("region") or region()}
    if endpoint:
        parts = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
        arguments |= {"endpoint_override": parts.netloc, "scheme": parts.scheme}
    if given.get("key"):
        arguments |= {"access_key": given["key"], "secret_key": given.get("secret", "")}
    return arguments


def gs_arguments(given: Mapping[str, str]) -> dict[str, Any]:
    endpoint = given.get("endpoint")
    if not endpoint:
        return {}
    parts = urlsplit(endpoint)
    return {"endpoint_override": parts.netloc, "scheme": parts.scheme}


def first_line(error: BaseException) -> str:
    """The reason only: Arrow's errors have several lines."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text).strip().partition("\n")[0]
