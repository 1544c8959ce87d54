"""Sentences of NMEA 0183 become readings, and corrupt ones never do."""

import contextlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.connectors.nmea import KINDS, NmeaReader, checksum_of
from gateway.connectors.reading import Reading, Unreadable

GGA = b"$GPGGA,123519,4807.038,N,01131.000,E,1,08,0.9,545.4,M,46.9,M,,*47"
RMC = b"$GPRMC,123519,A,4807.038,N,01131.000,E,022.4,084.4,230394,003.1,W*6A"


def sentence(body: str) -> bytes:
    return f"${body}*{checksum_of(body.encode()):02X}".encode()


def values(line: bytes, **options: object) -> dict[str, object]:
    found = NmeaReader(needs_checksum=True, **options).read(line)  # type: ignore[arg-type]
    return {one.name: one.value for one in found}


def test_a_place_is_degrees_with_a_sign() -> None:
    found = values(GGA)
    assert found["gga.latitude"] == pytest.approx(48.1173)
    assert found["gga.longitude"] == pytest.approx(11.516666667)
    assert (found["gga.quality"], found["gga.satellites"], found["gga.altitude"]) == (1, 8, 545.4)
    assert found["gga.time"] == "12:35:19"
    south = values(sentence("GPGGA,1,4807.038,S,01131.000,W,1"))
    assert (south["gga.latitude"], south["gga.longitude"]) == (pytest.approx(-48.1173), pytest.approx(-11.516666667))


def test_a_speed_is_in_metres_a_second_and_a_date_is_a_time() -> None:
    found = values(RMC)
    assert found["rmc.speed"] == pytest.approx(11.5236, abs=1e-4)
    assert (found["rmc.valid"], found["rmc.course"], found["rmc.variation"]) == (True, 84.4, -3.1)
    assert values(sentence("GPRMC,083559.00,A,,,,,,,091202,,"))["rmc.time"] == "2002-12-09T08:35:59Z"


def test_wind_and_depth_have_their_units() -> None:
    assert NmeaReader(needs_checksum=True).read(sentence("WIMWV,214.8,R,10.0,K,A")) == [
        Reading("mwv.wind_angle", 214.8, "deg"),
        Reading("mwv.reference", "R"),
        Reading("mwv.wind_speed", 2.777777778, "m/s"),
        Reading("mwv.valid", True),
    ]
    assert values(sentence("SDDBT,7.7,f,2.3,M,1.3,F")) == {"dbt.depth": 2.3}


def test_fields_of_other_kinds_have_numbers() -> None:
    assert values(sentence("PGRME,15.0,M,,M")) == {"grme.1": 15, "grme.2": "M", "grme.4": "M"}
    assert values(sentence("GPXYZ,a,,7")) == {"xyz.1": "a", "xyz.3": 7}
    assert values(sentence("IIXDR,C,19.52,C,TempAir,P,1.02481,B,Barometer")) == {
        "xdr.TempAir": 19.52,
        "xdr.Barometer": 1.02481,
    }


def test_filters_choose_talkers_and_kinds() -> None:
    assert values(GGA, talkers=("GN",)) == {}
    assert values(GGA, kinds=("RMC",)) == {}
    assert values(GGA, talkers=("GP",), kinds=("GGA",))


def test_a_wrong_checksum_is_refused_also_where_none_is_needed() -> None:
    with pytest.raises(Unreadable, match="a wrong checksum: 48, expected 47"):
        values(GGA[:-1] + b"8")
    with pytest.raises(Unreadable, match="without a checksum"):
        values(GGA[:-3])
    assert NmeaReader(needs_checksum=False).read(GGA[:-3])
    with pytest.raises(Unreadable, match="a wrong checksum"):
        NmeaReader(needs_checksum=False).read(GGA[:-1] + b"8")


def test_the_rest_of_a_sentence_that_was_cut_off_does_no_harm() -> None:
    assert values(b"$GPGGA,1235" + GGA)["gga.quality"] == 1


@given(st.binary(max_size=120))
def test_any_bytes_are_read_or_refused(line: bytes) -> None:
    for data in (line, b"$" + line, sentence("GPGGA," + line.hex())):
        with contextlib.suppress(Unreadable):
            assert isinstance(NmeaReader(needs_checksum=False).read(data), list)


@given(st.sampled_from(sorted(KINDS)), st.lists(st.text("0123456789.-ANESWMKfF", max_size=9), max_size=20))
def test_any_fields_of_known_kinds_are_read(kind: str, fields: list[str]) -> None:
    found = NmeaReader(needs_checksum=True).read(sentence(",".join([f"GP{kind}", *fields])))
    assert all(one.value is not None for one in found)


def test_no_flipped_bit_gives_another_reading(seed: int) -> None:
    dice = random.Random(seed)
    right = values(GGA)
    for _ in range(5000):
        data = bytearray(GGA)
        for place in {dice.randrange(8 * len(data)) for _ in range(dice.choice((1, 1, 3)))}:
            data[place // 8] ^= 1 << place % 8
        try:
            found = values(bytes(data))
        except Unreadable:
            continue
        changed = sum(left != other for left, other in zip(data, GGA, strict=True))
        assert found in (right, {}) or changed > 1
