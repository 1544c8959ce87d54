"""Jars beside Spark's own: Ivy fetches them once from Maven Central into the cache; later runs need no network."""

import shutil
import subprocess
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import pyspark

from cloud.spark.java import Java, SparkMissing, trust_options

IVY_SETTINGS = Path(__file__).with_name("ivysettings.xml")
_FETCH_TIMEOUT_S = 300
_AWS_SDK = "2.57.8"
_ANALYTICS = "1.3.1"  # the version in the POM of hadoop-aws 3.5

_MODULE = """\
<ivy-module version="2.0">
  <info organisation="holdfast" module="cloud"/>
  <configurations><conf name="default"/></configurations>
  <dependencies defaultconf="default->master,runtime">
    {dependencies}
  </dependencies>
</ivy-module>
"""
_ALONE = '<dependency org="{}" name="{}" rev="{}" transitive="false"/>'
_WITH_OTHERS = '<dependency org="{}" name="{}" rev="{}"/>'
# Spark has these, or its s3a never asks for them when it reads. A second Netty would take the place of Spark's.
_LEFT_OUT = "".join(
    f'<exclude org="{org}" module="{module}"/>'
    for org, module in (
        ("io.netty", "*"),
        ("org.slf4j", "*"),
        ("commons-codec", "*"),
        ("commons-logging", "*"),
        ("org.apache.httpcomponents", "*"),
        ("org.apache.httpcomponents.client5", "*"),
        ("org.apache.httpcomponents.core5", "*"),
        ("software.amazon.awssdk", "apache5-client"),
        ("software.amazon.awssdk", "netty-nio-client"),
    )
)


class JarsMissing(SparkMissing):
    """Jars are not in the cache and could not be fetched. The text says why."""


class _Wanted(NamedTuple):
    """Jars of one folder in the cache: how the names begin that must be there, and how Ivy is told to fetch them."""

    whose: str
    folder: str
    names: tuple[str, ...]
    dependencies: str


def delta_jars(java: Java, cache: Path) -> list[Path]:
    """Returns the jars that Spark needs for Delta tables, and fetches them if need be. Raises JarsMissing."""
    delta = version("delta-spark")
    spark = f"delta-spark_{'.'.join(pyspark.__version__.split('.')[:2])}_2.13"
    # Alone: the other dependencies in the POMs are for catalogs that we do not use, or are part of Spark.
    asked = "".join(_ALONE.format("io.delta", name, delta) for name in (spark, "delta-storage"))
    return _jars(java, cache, _Wanted("Delta's", f"{spark}-{delta}", (spark, "delta-storage"), asked))


def s3_jars(java: Java, cache: Path) -> list[Path]:
    """Returns the jars by which Spark reads URLs of S3, and fetches them if need be. Raises JarsMissing.

    They are the parts of Amazon's SDK that s3a uses. The bundle that Hadoop names has 600 MB, these have 13.
    """
    (client,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    hadoop = client.stem.rpartition("-")[2]
    sdk = ("s3", "s3-transfer-manager", "sts", "apache-client")
    asked = _ALONE.format("org.apache.hadoop", "hadoop-aws", hadoop)
    asked += _ALONE.format("software.amazon.s3.analyticsaccelerator", "analyticsaccelerator-s3", _ANALYTICS)
    asked += "".join(_WITH_OTHERS.format("software.amazon.awssdk", name, _AWS_SDK) for name in sdk) + _LEFT_OUT
    return _jars(java, cache, _Wanted("S3's", f"hadoop-aws-{hadoop}-{_AWS_SDK}", ("hadoop-aws", *sdk), asked))


def _jars(java: Java, cache: Path, wanted: _Wanted) -> list[Path]:
    folder = cache / wanted.folder
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix="fetch-") as workshop:
            _fetch(java, Path(workshop), wanted)
            _publish(Path(workshop) / "jars", folder)
    if missing := [name for name in wanted.names if not any(folder.glob(f"{name}-[0-9]*.jar"))]:
        raise JarsMissing(f"{folder} lacks {', '.join(missing)}; remove the folder to have it fetched again")
    return sorted(folder.glob("*.jar"))


def _fetch(java: Java, workshop: Path, wanted: _Wanted) -> None:
    """Runs the Ivy that is part of Spark. The jars are in workshop/jars afterwards."""
    (workshop / "ivy.xml").write_text(_MODULE.format(dependencies=wanted.dependencies))
    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    command = [str(java.program), *trust_options(java, workshop), "-jar", str(ivy), "-warn"]
    command += ["-settings", str(IVY_SETTINGS), "-cache", str(workshop / "ivy"), "-ivy", str(workshop / "ivy.xml")]
    command += ["-retrieve", str(workshop / "jars" / "[artifact]-[revision].[ext]"), "-types", "jar", "bundle"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        late = f"Maven Central did not deliver {wanted.whose} jars within {_FETCH_TIMEOUT_S} s"
        raise JarsMissing(late) from None
    if done.returncode != 0 or not (workshop / "jars").exists():
        reason = _reason(done.stdout + done.stderr)
        raise JarsMissing(f"{wanted.whose} jars could not be fetched from Maven Central: {reason}")


def _publish(fetched: Path, folder: Path) -> None:
    try:
        fetched.rename(folder)
    except OSError:
        if not folder.exists():  # otherwise another process has just fetched them
            raise
        shutil.rmtree(fetched)


def _reason(output: str) -> str:
    """Returns the most useful line of Ivy's report."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return next((line for line in lines if "Exception" in line), lines[0] if lines else "Ivy said nothing")
