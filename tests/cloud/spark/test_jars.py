from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cloud.spark import jars
from cloud.spark.jars import JarsMissing, delta_jars
from cloud.spark.java import find_java
from cloud.spark.session import open_session
from tools.cli.paths import cache_directory

UNREACHABLE = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true" root="http://127.0.0.1:9/"/></resolvers>
</ivysettings>
"""


@pytest.fixture(autouse=True)
def unreachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(UNREACHABLE)
    monkeypatch.setattr(jars, "IVY_SETTINGS", settings)


@pytest.mark.usefixtures("spark")
def test_cached_jars_need_no_network() -> None:
    assert [jar.exists() for jar in delta_jars(find_java(), cache_directory())] == [True, True]


def test_error_without_network_and_cache_says_so(tmp_path: Path) -> None:
    with pytest.raises(JarsMissing, match=r"could not be fetched from Maven Central: .*127\.0\.0\.1:9"):
        delta_jars(find_java(), tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.usefixtures("spark")
def test_error_names_the_jar_that_a_cache_lacks(tmp_path: Path) -> None:
    java = find_java()
    folder = delta_jars(java, cache_directory())[0].parent
    (tmp_path / folder.name).mkdir()
    with pytest.raises(JarsMissing, match=r"lacks delta-spark_.*remove the folder"):
        delta_jars(java, tmp_path)


def test_running_session_is_returned(spark: SparkSession) -> None:
    assert open_session(Path("/nowhere")) is spark
