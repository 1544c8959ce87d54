"""A part of an object store, by the library obstore: S3, and what speaks its language; Google's and Azure's stores.

An object appears whole, and is durable, when its upload ends. What makes two jobs safe is that an object can be
created on condition that there is none (`If-None-Match: *`).
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from typing import Any, NoReturn
from urllib.parse import parse_qsl, urlsplit

import obstore
import pyarrow as pa
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import from_url
from pyarrow import fs

from cloud.storage.storage import Entry, Rename, StoreError, Written

OBJECT_STORES = ("s3", "gs", "abfs", "abfss")
"""The schemes of URLs that have an object store."""
_OPTIONS = ("endpoint_override", "region", "scheme")
_READ_WHOLE_BYTES = 1 << 20
_REQUEST_S = 120
_RETRY: Any = {"max_retries": 4, "retry_timeout": timedelta(seconds=_REQUEST_S)}


class ObjectStorage:
    """Objects with a common prefix.

    There is no lock: the broker tells a lander that another one uses its name, and jobs take turns by what they create.

    Args:
        place: "s3://BUCKET/PREFIX". Behind a question mark: `region`, `endpoint_override` (host:port of a store other
            than Amazon's), and `scheme=http`. Keys are never in it: they are in the environment, or the machine has a
            role.

    Raises ValueError for a bad URL.
    """

    def __init__(self, place: str) -> None:
        parts = urlsplit(place)
        self.place = place
        self._prefix = parts.path.strip("/")
        self._url = "/".join(filter(None, [f"{parts.scheme}://{parts.hostname or ''}", self._prefix]))
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        if "@" in parts.netloc or "secret_key" in options or "access_key" in options:
            raise ValueError(f"{self._url}: expected no keys in the URL; they are in the environment")
        if parts.scheme not in OBJECT_STORES or not parts.hostname:
            raise ValueError(f"{self._url}: expected the URL of an object store, such as s3://BUCKET/PREFIX")
        if unknown := sorted(set(options) - set(_OPTIONS)):
            raise ValueError(f"{self._url}: unknown option {unknown[0]}; expected {', '.join(_OPTIONS)}")
        self._bucket = f"{parts.scheme}://{parts.hostname}"
        self._options = options

    def __str__(self) -> str:
        return self._url

    @cached_property
    def _store(self) -> Any:
        config: dict[str, str] = {}
        client: dict[str, Any] = {"timeout": timedelta(seconds=_REQUEST_S), "connect_timeout": timedelta(seconds=10)}
        if endpoint := self._options.get("endpoint_override"):
            scheme = self._options.get("scheme", "https")
            config["endpoint"] = f"{scheme}://{endpoint}"
            client["allow_http"] = scheme == "http"
        if region := self._options.get("region"):
            config["region"] = region
        try:
            return from_url(self._bucket, config=config, client_options=client, retry_config=_RETRY)  # type: ignore[call-overload]
        except BaseError as error:
            _fail(self._url, error)

    @property
    def uri(self) -> str:
        return self._url

    @property
    def delta_options(self) -> dict[str, str]:
        options = {"timeout": f"{_REQUEST_S}s", "connect_timeout": "10s"}
        if endpoint := self._options.get("endpoint_override"):
            scheme = self._options.get("scheme", "https")
            options |= {"endpoint": f"{scheme}://{endpoint}", "allow_http": str(scheme == "http").lower()}
        return options | {name: value for name, value in self._options.items() if name == "region"}

    @cached_property
    def filesystem(self) -> fs.FileSystem:
        return fs.PyFileSystem(_Reading(self._store, self._bucket))

    def child(self, name: str) -> "ObjectStorage":
        path, question, query = self.place.partition("?")
        return ObjectStorage(f"{path.rstrip('/')}/{name}{question}{query}")

    def path(self, name: str) -> str:
        return f"{self._prefix}/{name}" if self._prefix else name

    def is_there(self) -> bool:
        return True

    def lock(self, name: str) -> bool:
        return True

    def unlock(self) -> None:
        pass

    def names(self) -> list[str]:
        with _telling(self._url):
            found = obstore.list_with_delimiter(self._store, self._prefix or None)["objects"]
        return [self._name(one["path"]) for one in found]

    def walk(self) -> Iterator[Entry]:
        with _telling(self._url):
            for page in obstore.list(self._store, self._prefix or None):
                for one in page:
                    yield Entry(self._name(one["path"]), one["size"], one["last_modified"].timestamp())

    def has(self, name: str) -> bool:
        try:
            self.size(name)
        except FileNotFoundError:
            return False
        return True

    def size(self, name: str) -> int:
        with _telling(f"{self._url}/{name}"):
            return obstore.head(self._store, self.path(name))["size"]

    def read(self, name: str) -> bytes:
        with _telling(f"{self._url}/{name}"):
            return bytes(obstore.get(self._store, self.path(name)).bytes())

    def write(self, name: str, content: bytes) -> None:
        with _telling(f"{self._url}/{name}"):
            obstore.put(self._store, self.path(name), content)

    def create(self, name: str, content: bytes) -> bool:
        try:
            with _telling(f"{self._url}/{name}"):
                obstore.put(self._store, self.path(name), content, mode="create")
        except FileExistsError:
            # The library repeats a request whose answer was lost. Then the object that is in the way is this one.
            return self.read(name) == content
        return True

    def open(self, name: str) -> "ObjectOutput":
        return ObjectOutput(self, name)

    def copy(self, name: str, to: str) -> None:
        with _telling(f"{self._url}/{name}"):
            obstore.copy(self._store, self.path(name), self.path(to))

    def may_have(self, name: str) -> bool:
        return True  # an upload whose answer is lost may end later

    def remove(self, name: str) -> None:
        with _telling(f"{self._url}/{name}"):
            obstore.delete(self._store, self.path(name))

    def clear(self) -> None:
        for entry in list(self.walk()):
            self.remove(entry.name)

    def _name(self, path: str) -> str:
        return path.removeprefix(f"{self._prefix}/") if self._prefix else path


class ObjectOutput:
    """An object that is being written: in memory, until it is whole."""

    def __init__(self, storage: ObjectStorage, name: str) -> None:
        self._storage = storage
        self._name = name
        self.sink = pa.BufferOutputStream()

    def close(self, rename: Rename | None = None) -> Written:
        content = self.sink.getvalue().to_pybytes()
        sha256 = hashlib.sha256(content).hexdigest()
        name = rename(self._name, sha256) if rename else self._name
        self._storage.write(name, content)
        return Written(name, len(content), sha256)

    def discard(self) -> None:
        self.sink.close()


class _Reading(fs.FileSystemHandler):
    """The objects of a bucket as files that pyarrow reads. It writes nothing by this."""

    def __init__(self, store: Any, bucket: str) -> None:
        self._store = store
        self._bucket = bucket

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reading) and self._store == other._store

    def get_type_name(self) -> str:
        return "objects"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        return [self._info(path) for path in paths]

    def _info(self, path: str) -> fs.FileInfo:
        try:
            with _telling(f"{self._bucket}/{path}"):
                return fs.FileInfo(path, fs.FileType.File, size=obstore.head(self._store, path)["size"])
        except FileNotFoundError:
            return fs.FileInfo(path, fs.FileType.NotFound)

    def open_input_file(self, path: str) -> pa.NativeFile:
        with _telling(f"{self._bucket}/{path}"):
            size = obstore.head(self._store, path)["size"]
            if size <= _READ_WHOLE_BYTES:
                return pa.BufferReader(pa.py_buffer(obstore.get(self._store, path).bytes()))
            return pa.PythonFile(_Object(self._store, f"{self._bucket}/{path}", path, size), "r")

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self.open_input_file(path)

    def get_file_info_selector(self, selector: fs.FileSelector) -> NoReturn:
        raise NotImplementedError

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = move = copy_file = (
        open_output_stream
    ) = open_append_stream = get_file_info_selector


class _Object:
    """An object as a file that can be read from any place: each `read` is one request."""

    def __init__(self, store: Any, url: str, path: str, size: int) -> None:
        self._store = store
        self._url = url
        self._path = path
        self._size = size
        self._at = 0
        self.closed = False

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def read(self, length: int = -1) -> bytes:
        end = self._size if length < 0 else min(self._at + length, self._size)
        if end <= self._at:
            return b""
        with _telling(self._url):
            content = bytes(obstore.get_range(self._store, self._path, start=self._at, end=end))
        self._at = end
        return content

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


@contextmanager
def _telling(url: str) -> Iterator[None]:
    """Turns errors of the library into FileExistsError, FileNotFoundError and StoreError, in one line."""
    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(f"{url} does not exist") from None
    except AlreadyExistsError:
        raise FileExistsError(f"{url} exists") from None
    except BaseError as error:
        _fail(url, error)


def _fail(url: str, error: Exception) -> NoReturn:
    (reason, *_) = str(error).strip().splitlines() or [type(error).__name__]
    raise StoreError(f"{url}: {reason}") from None
