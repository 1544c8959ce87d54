"""A server's certificate for localhost and the authority that has signed it, as openssl makes them."""

import subprocess
from pathlib import Path

NEW = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


def make_certificates(folder: Path) -> None:
    """`ca.pem`, `server.pem` and `server.key` in `folder`. Raises OSError, subprocess.CalledProcessError."""
    _openssl(folder, "req", "-x509", *NEW, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca")
    _openssl(folder, "req", *NEW, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=localhost")
    signer = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "1"]
    _openssl(folder, "x509", "-req", "-in", "server.csr", *signer, "-out", "server.pem")


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)
