"""Files are proved by their bytes: no flipped bit is overlooked, wherever it is."""

import random
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from cloud import verify
from cloud.storage.local import LocalStorage
from cloud.tables.data_file import digest_of, read_columns, write_rows
from cloud.tables.schema import BRONZE_MESSAGES, READINGS, Table
from cloud.tables.stored_table import StoredTable
from cloud.tables.tables import Tables
from cloud.upkeep import checksums
from cloud.upkeep.checksums import StoredFile, prove_bytes
from cloud.upkeep.verify import DIGESTS
from tests.cloud.lake import Lake

ROWS = pa.table(
    {"origin": [f"device-{number % 7}" for number in range(5000)], "value": [n * 0.37 for n in range(5000)]}
)


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def written(folder: Path, name: str = "a.parquet") -> StoredFile:
    """Writes a file as the tables' files are written."""
    output = LocalStorage(folder).open(name)
    options = {"compression": "zstd", "use_dictionary": ["origin"], "write_page_checksum": True}
    pq.write_table(ROWS, output.sink, **options)
    _, size, sha256 = output.close()
    return StoredFile(LocalStorage(folder), name, size, sha256)


def test_each_of_a_thousand_flipped_bits_is_noticed(tmp_path: Path, seed: int) -> None:
    """In pages, their headers, and the footer."""
    file = written(tmp_path)
    dice = random.Random(seed)
    assert prove_bytes([file], full=True) == ([], 1, 0, 1)
    for _ in range(1000):
        bit = dice.randrange(file.size * 8)
        flip(tmp_path / file.name, bit)
        assert len(prove_bytes([file], full=True).faults) == 1, bit
        flip(tmp_path / file.name, bit)
    assert prove_bytes([file], full=True).faults == []


def test_without_a_digest_the_checksums_of_pages_are_compared(tmp_path: Path, seed: int) -> None:
    file = written(tmp_path)._replace(sha256=None)
    assert prove_bytes([file], full=True) == ([], 1, 0, 1)
    column = pq.read_metadata(tmp_path / file.name).row_group(0).column(1)
    data = range(column.data_page_offset + 64, column.data_page_offset + column.total_compressed_size)
    for at in random.Random(seed).sample(data, 50):
        flip(tmp_path / file.name, 8 * at)
        assert len(prove_bytes([file], full=True).faults) == 1, at
        flip(tmp_path / file.name, 8 * at)


def test_a_file_without_any_checksum_is_read_and_counted(tmp_path: Path) -> None:
    """As versions before this one wrote them."""
    pq.write_table(ROWS, tmp_path / "old.parquet", compression="zstd")
    old = StoredFile(LocalStorage(tmp_path), "old.parquet", 1, None)
    proof = prove_bytes([old, written(tmp_path)], full=True)
    assert (proof.faults, proof.remark) == ([], "1 files have no checksum")
    assert read_columns(LocalStorage(tmp_path), "old.parquet").equals(ROWS)


def test_a_sample_reads_other_files_each_time_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [written(tmp_path, f"{number}.parquet") for number in range(8)]
    monkeypatch.setattr(checksums, "SAMPLE_BYTES", 3 * files[0].size)
    flip(tmp_path / files[0].name, 800)
    proofs = [prove_bytes(files, full=False) for _ in range(100)]
    assert {proof.remark for proof in proofs} == {"3 of 8 files were read"}
    assert {len(proof.faults) for proof in proofs} == {0, 1}


def test_a_flipped_bit_in_a_table_or_a_landing_file_is_a_fault_of_verify(lake: Lake) -> None:
    tables = Tables(lake.spark, lake.folder)
    (file, *_) = tables.files(READINGS)
    path = lake.folder / "readings" / file.place
    flip(path, 8 * (path.stat().st_size // 2))
    (fault,) = (one for one in verify(lake.spark, lake.landing, lake.folder, full=True) if not one.holds)
    assert (fault.check, fault.table) == ("data files have the bytes that were written", "readings")
    assert fault.detail == f"{file.place}: its bytes are not the ones that were written"
    flip(path, 8 * (path.stat().st_size // 2))
    landed = min(lake.landing.glob("*.parquet"))
    flip(landed, 800)
    (fault,) = (one for one in verify(lake.spark, lake.landing, lake.folder, fresh_s=1e12, full=True) if not one.holds)
    assert fault.check == "the bytes of landing files are those of their manifests"


def stored(lake: Lake, table: Table) -> StoredTable:
    return StoredTable(LocalStorage(lake.folder / table.name))


def age(lake: Lake, table: Table) -> Path:
    """Makes files of a table as another program writes them: no digest in the name, and no checksum in a page. Returns
    the first of them."""
    for commit in (lake.folder / table.name / "_delta_log").glob("*.json"):
        text = commit.read_text()
        for place in re.findall(r'"path":"([^"]+)"', text):
            path = lake.folder / table.name / place
            bare = re.sub(r"-[0-9a-f]{64}", "", place)
            rows = pq.read_table(path, partitioning=None)
            size = path.stat().st_size
            path.unlink()
            pq.write_table(rows, path.parent / Path(bare).name, compression="none", use_dictionary=False)
            text = text.replace(place, bare)
            text = text.replace(f'"size":{size}', f'"size":{(path.parent / Path(bare).name).stat().st_size}')
        commit.write_text(text)
    tables = Tables(lake.spark, lake.folder)
    return lake.folder / table.name / tables.files(table)[0].place


def test_files_without_a_digest_are_told_as_unproved_until_they_are_sealed(lake: Lake) -> None:
    path = age(lake, BRONZE_MESSAGES)
    (told,) = (one for one in verify(lake.spark, lake.landing, lake.folder, fresh_s=1e12) if not one.holds)
    assert (told.check, told.table, told.faults, told.is_unproved) == (DIGESTS, "bronze_messages", 3, True)
    assert (told.detail or "").endswith(f"{path.name} has none")
    sealed = verify(lake.spark, lake.landing, lake.folder, fresh_s=1e12, seal=True)
    assert [one for one in sealed if not one.holds] == []
    assert "3 files were sealed" in [one.detail for one in sealed if one.check == DIGESTS]
    stored(lake, BRONZE_MESSAGES).write_checkpoint()
    assert all(one.holds for one in verify(lake.spark, lake.landing, lake.folder, fresh_s=1e12))
    assert len(DeltaTable(lake.folder / BRONZE_MESSAGES.name).to_pyarrow_table()) == len(lake.rows("bronze_messages"))
    (path, *_) = (lake.folder / BRONZE_MESSAGES.name / place for place in stored(lake, BRONZE_MESSAGES).files)
    content = path.read_bytes()
    at = content.index(b"load")  # in a payload, where no count and no decoder looks
    path.write_bytes(content[:at] + b"l0ad" + content[at + 4 :])
    (fault,) = (one for one in verify(lake.spark, lake.landing, lake.folder, full=True) if not one.holds)
    assert (fault.table, fault.is_unproved) == ("bronze_messages", False)


def test_nothing_is_sealed_beside_a_fault(lake: Lake) -> None:
    age(lake, BRONZE_MESSAGES)
    tables = Tables(lake.spark, lake.folder)
    tables.replace(READINGS, [(file := tables.files(READINGS)[0])], tables.read_files(READINGS, [file]).slice(1))
    verify(lake.spark, lake.landing, lake.folder, seal=True)
    told = [one for one in verify(lake.spark, lake.landing, lake.folder, fresh_s=1e12) if one.is_unproved]
    assert [(one.table, one.faults) for one in told] == [("bronze_messages", 3)]


def test_sealing_brings_back_no_file_that_another_program_removed_meanwhile(lake: Lake) -> None:
    age(lake, BRONZE_MESSAGES)
    tables = Tables(lake.spark, lake.folder)
    digests = tables.compute_digests(BRONZE_MESSAGES)
    (gone, *rest) = tables.files(BRONZE_MESSAGES)
    stored(lake, BRONZE_MESSAGES).commit(removed=[gone])
    assert tables.seal(BRONZE_MESSAGES, digests) == len(rest)
    assert {re.sub(r"-[0-9a-f]{64}", "", place) for place in stored(lake, BRONZE_MESSAGES).files} == {
        file.place for file in rest
    }


def test_each_file_of_the_tables_has_a_digest_and_checksums_also_behind_a_checkpoint_of_the_log(lake: Lake) -> None:
    tables = Tables(lake.spark, lake.folder)
    stored(lake, BRONZE_MESSAGES).write_checkpoint()
    for table in (BRONZE_MESSAGES, READINGS):
        for file in Tables(lake.spark, lake.folder).files(table):
            assert file.sha256 == digest_of(tables.of(table), file.place)
            bare = StoredFile(tables.of(table), file.place, file.size, None)
            assert prove_bytes([bare], full=True) == ([], 1, 0, 1)


def test_a_corrupt_page_is_not_copied_into_a_new_file(tmp_path: Path) -> None:
    folder = LocalStorage(tmp_path)
    rows = BRONZE_MESSAGES.arrow_schema.empty_table()
    assert write_rows(folder, BRONZE_MESSAGES, 1, rows, {"ingest_date": "2026-01-01"}).sha256
    file = written(tmp_path)
    column = pq.read_metadata(tmp_path / file.name).row_group(0).column(1)
    flip(tmp_path / file.name, 8 * (column.data_page_offset + column.total_compressed_size - 9))
    with pytest.raises(OSError, match="CRC"):
        read_columns(folder, file.name)
