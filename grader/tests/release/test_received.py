"""`make handin STATUS=1`: what was received, and which one counts."""

from __future__ import annotations

import io
import json
import tarfile
from datetime import UTC, datetime, timedelta, timezone

import pytest

from shared.received import counts, main, received, report


@pytest.fixture
def folder(tmp_path):
    for name, files in (("20270312-100000", 3), ("20270313-045900", 5), ("20270313-045901", 0)):
        with tarfile.open(tmp_path / f"{name}.tar.gz", "w:gz") as archive:
            data = json.dumps({"files": [{}] * files}).encode()
            entry = tarfile.TarInfo("manifest.json")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    (tmp_path / ".handin-1234.part").write_bytes(b"x")
    (tmp_path / "notes.txt").write_bytes(b"x")
    return tmp_path


def test_all_are_listed_in_the_order_of_their_arrival(folder):
    found = received(folder)
    assert [(r.at.hour, r.files) for r in found] == [(10, 3), (4, 5), (4, 0)]
    assert all(r.at.tzinfo for r in found)


def test_the_last_before_the_deadline_counts(folder):
    found = received(folder)
    assert counts(found, None) is found[2]
    eastern = timezone(timedelta(hours=-5))
    assert counts(found, datetime(2027, 3, 12, 23, 59, tzinfo=eastern)) is found[1]
    assert counts(found, datetime(2027, 3, 1, tzinfo=UTC)) is None
    lines = report(found, datetime(2027, 3, 12, 23, 59, tzinfo=eastern)).splitlines()
    assert [line.endswith("<- counts") for line in lines] == [False, True, False, False]


def test_none_in_time_is_said(folder, capsys):
    assert main([str(folder), "--deadline", "2027-03-01T00:00:00+00:00"]) == 0
    assert "None of these was received in time" in capsys.readouterr().out


def test_an_archive_that_cannot_be_read_is_named(folder, capsys):
    (folder / "20270314-000000.tar.gz").write_bytes(b"not a tarball")
    assert main([str(folder)]) == 0
    said = capsys.readouterr().out
    assert "UNREADABLE" in said and "run `make handin` again" in said


def test_nothing_received(tmp_path, capsys):
    assert main([str(tmp_path / "nobody")]) == 1
    assert "Nothing has been received" in capsys.readouterr().out


def test_a_deadline_without_its_zone_is_refused(folder):
    with pytest.raises(SystemExit):
        main([str(folder), "--deadline", "2027-03-01T00:00:00"])
