"""Delta Lake's jars: Ivy fetches them once from Maven Central into the cache; later runs need no network."""

import shutil
import subprocess
import tempfile
from importlib.metadata import version
from pathlib import Path

import pyspark

from cloud.spark.java import Java, SparkMissing, trust_options

IVY_SETTINGS = Path(__file__).with_name("ivysettings.xml")
_FETCH_TIMEOUT_S = 300

# Not transitive: the other dependencies in the POMs are for catalogs that we do not use, or are part of Spark.
_MODULE = """\
<ivy-module version="2.0">
  <info organisation="holdfast" module="cloud"/>
  <dependencies>
    <dependency org="io.delta" name="{spark}" rev="{version}" transitive="false"/>
    <dependency org="io.delta" name="delta-storage" rev="{version}" transitive="false"/>
  </dependencies>
</ivy-module>
"""


class JarsMissing(SparkMissing):
    """Delta's jars are not in the cache and could not be fetched. The text says why."""


def delta_jars(java: Java, cache: Path) -> list[Path]:
    """Returns the jars that Spark needs for Delta tables, and fetches them if need be. Raises JarsMissing."""
    delta = version("delta-spark")
    spark = f"delta-spark_{'.'.join(pyspark.__version__.split('.')[:2])}_2.13"
    folder = cache / f"{spark}-{delta}"
    jars = [folder / f"{spark}-{delta}.jar", folder / f"delta-storage-{delta}.jar"]
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix="fetch-") as workshop:
            _fetch(java, Path(workshop), _MODULE.format(spark=spark, version=delta))
            _publish(Path(workshop) / "jars", folder)
    if missing := [jar.name for jar in jars if not jar.exists()]:
        raise JarsMissing(f"{folder} lacks {', '.join(missing)}; remove the folder to have it fetched again")
    return jars


def _fetch(java: Java, workshop: Path, module: str) -> None:
    """Runs the Ivy that is part of Spark. The jars are in workshop/jars afterwards."""
    (workshop / "ivy.xml").write_text(module)
    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    command = [str(java.program), *trust_options(java, workshop), "-jar", str(ivy), "-warn"]
    command += ["-settings", str(IVY_SETTINGS), "-cache", str(workshop / "ivy"), "-ivy", str(workshop / "ivy.xml")]
    command += ["-retrieve", str(workshop / "jars" / "[artifact]-[revision].[ext]"), "-types", "jar", "bundle"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise JarsMissing(f"Maven Central did not deliver Delta's jars within {_FETCH_TIMEOUT_S} s") from None
    if done.returncode != 0 or not (workshop / "jars").exists():
        raise JarsMissing(f"Delta's jars could not be fetched from Maven Central: {_reason(done.stdout + done.stderr)}")


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
