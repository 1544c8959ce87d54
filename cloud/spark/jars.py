"""Delta Lake's jars: fetched once from Maven Central by Ivy, kept in the cache, used offline from then on."""

import shutil
import subprocess
import tempfile
from importlib.metadata import version
from pathlib import Path

import pyspark

from cloud.java import Java, trust_options

IVY_SETTINGS = Path(__file__).with_name("ivysettings.xml")
_FETCH_TIMEOUT_S = 300

# Not transitive: what else the POMs name is for catalogs that we do not use, or comes with Spark already.
_MODULE = """\
<ivy-module version="2.0">
  <info organisation="holdfast" module="cloud"/>
  <dependencies>
    <dependency org="io.delta" name="{spark}" rev="{version}" transitive="false"/>
    <dependency org="io.delta" name="delta-storage" rev="{version}" transitive="false"/>
  </dependencies>
</ivy-module>
"""


class JarsMissing(Exception):
    """Delta's jars are not in the cache and could not be fetched; the text says why."""


def delta_jars(java: Java, cache: Path) -> list[Path]:
    """The jars that Spark needs for Delta tables; fetches them when the cache has none. Raises JarsMissing."""
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
    """Runs the Ivy that comes with Spark; the jars are in workshop/jars afterwards."""
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
        if not folder.exists():  # another process may have been first
            raise
        shutil.rmtree(fetched)


def _reason(output: str) -> str:
    """The line of Ivy's report that tells most."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return next((line for line in lines if "Exception" in line), lines[0] if lines else "Ivy said nothing")
