"""An S3 server for tests: versitygw (Apache-2.0, a Go program), which serves a folder over the S3 protocol.

    with S3(folder) as s3: s3.location("bucket/table"), s3.environment, s3.keys("bucket")

Built once by `go install` into the tests' cache (`judge.cached`).
"""

from __future__ import annotations

import os
import socket
import subprocess
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import judge
from pyarrow import fs

from ottla.spark.storage.location import Location

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self

VERSION: Final = "v1.8.0"
MODULE: Final = "github.com/versity/versitygw/cmd/versitygw"
KEY, SECRET = "ottla", "a secret of tests"


@cache
def program() -> Path:
    def build(target: Path) -> None:
        environment = {**os.environ, "GOBIN": str(target), "GOFLAGS": "-trimpath"}
        judge.run(["go", "install", "-ldflags=-s -w", f"{MODULE}@{VERSION}"], "building the S3 server", env=environment)

    return judge.cached(f"versitygw-{VERSION}", build) / "versitygw"


class S3:
    """One server; buckets are folders in `folder`. `host` is the address for clients."""

    def __init__(self, folder: Path, *, host: str = "127.0.0.1") -> None:
        self.folder = folder
        self.host = host
        (self.port,) = judge.free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that the storage libraries read."""
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @property
    def settings(self) -> dict[str, str]:
        return {"endpoint": self.endpoint, "region": "us-east-1", "key": KEY, "secret": SECRET}

    def location(self, path: str) -> Location:
        return Location.parse(f"s3://{path}", self.settings)

    @cache  # noqa: B019 - a server lives as long as its tests
    def filesystem(self) -> Any:
        address = f"{self.host}:{self.port}"
        return fs.S3FileSystem(
            access_key=KEY,
            secret_key=SECRET,
            endpoint_override=address,
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
        )

    def keys(self, path: str) -> list[str]:
        """The names of all objects below `path`, from a listing."""
        chosen = fs.FileSelector(path, recursive=True, allow_not_found=True)
        return sorted(one.path for one in self.filesystem().get_file_info(chosen) if one.type == fs.FileType.File)

    def start(self) -> Self:
        data, beside = self.folder / "data", self.folder / "beside"
        for one in (data, beside):
            one.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(program()), "--port", f"{self.host}:{self.port}", "--quiet", "posix", "--sidecar", str(beside),
                 str(data)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
            )  # fmt: skip
        judge.until(self._answers, self._process, self.folder / "server.log")
        return self

    def _answers(self) -> bool:
        with suppress(OSError):
            socket.create_connection((self.host, self.port), timeout=2).close()
            return True
        return False

    def stop(self) -> None:
        if self._process is not None:
            judge.stop_process(self._process)

    def make_bucket(self, name: str) -> None:
        self.filesystem().create_dir(name)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
