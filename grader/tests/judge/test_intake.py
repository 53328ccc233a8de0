"""A hand-in is read whatever it holds, and nothing of it gets anywhere it should not."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import tarfile
import tracemalloc
import zipfile

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from ...judge.intake import limits_of, open_handin
from ...judge.members import Limits
from .samples import (
    SOURCE,
    entry,
    header,
    sample_files,
    sample_manifest,
    sample_table,
    tar_gz,
    tar_of,
    zip_of,
)

TABLE = sample_table()
FILES = sample_files()


@pytest.fixture
def opened(tmp_path):
    """Opens bytes as the upload they are."""

    def opened(data: bytes, name: str = "up.tar.gz", table=TABLE, limits: Limits | None = None):
        (tmp_path / name).write_bytes(data)
        before = sorted(p.name for p in tmp_path.rglob("*"))
        handin = open_handin(tmp_path / name, table, limits)
        assert sorted(p.name for p in tmp_path.rglob("*")) == before, "something was extracted"
        return handin

    return opened


def problem(handin) -> str:
    assert len(handin.problems) == 1, handin.problems
    return handin.problems[0]


def with_entry(*entries, format: int = tarfile.PAX_FORMAT, encoding: str = "utf-8") -> bytes:
    whole = [entry(name, data) for name, data in FILES.items()]
    return tar_gz([*whole, *entries], format=format, encoding=encoding)


# ---- What is right ---------------------------------------------------------------------------


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("pack", [tar_gz, tar_of])
def test_a_whole_hand_in_is_read_without_a_word(opened, pack, format):
    files = FILES | {"results/p9/t.png": bytes(30_000), "p9/challenges/fast.py": SOURCE}
    handin = opened(pack(files | {"manifest.json": sample_manifest(files)}, format=format))
    assert handin.files == files
    assert handin.problems == []
    assert handin.student == "ab123"
    assert len(handin.sha256) == 64
    assert handin.notes == ([] if pack is tar_gz else [handin.notes[0]])


def test_long_and_foreign_names_are_read(opened):
    names = ["results/p9/" + "n" * 150 + ".csv", "results/p9/naïve – 表.csv"]
    for format in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        handin = opened(tar_gz(FILES | dict.fromkeys(names, b"a\n1\n"), format=format))
        assert set(names) <= set(handin.files) and handin.problems == []


def test_a_zip_and_a_folder_are_read_by_the_same_rules(opened, tmp_path):
    stray = {"conftest.py": SOURCE, "__MACOSX/pkg/._ops.py": b"\0"}
    handin = opened(zip_of(FILES | stray))
    assert handin.files == FILES and handin.problems == []
    folder = tmp_path / "submission"
    for name, data in (FILES | stray).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    (folder / "results/p9/x.csv").symlink_to("/etc/passwd")
    (folder / "elsewhere").symlink_to("/etc")
    os.mkfifo(folder / "results/p9/y.csv")
    handin = open_handin(folder, TABLE)
    assert handin.files == FILES
    assert "symbolic link" in " ".join(handin.problems) and "pipe" in " ".join(handin.problems)


@pytest.mark.parametrize("wrapper", ["hw/", "hw-final/hw/", "./", "./hw//"])
def test_a_folder_around_everything_is_removed(opened, wrapper):
    files = FILES | {"manifest.json": sample_manifest(FILES)}
    wrapped = {wrapper + name: data for name, data in files.items()}
    handin = opened(tar_gz(wrapped | {"__MACOSX/hw/._t.csv": b"x"}))
    assert handin.files == FILES and handin.problems == []
    assert handin.student == "ab123"


def test_a_whole_clone_counts_by_its_top(opened):
    copies = {f"grade/released/{name}": b"old" for name in FILES}
    handin = opened(tar_gz({f"clone/{n}": d for n, d in (copies | FILES).items()}))
    assert handin.files == FILES and handin.problems == []
    assert "grade/released" in " ".join(handin.notes)


def test_two_folders_of_equal_right_are_named_and_neither_is_taken(opened):
    both = {f"{top}/{name}": data for top in ("old", "new") for name, data in FILES.items()}
    handin = opened(tar_gz(both))
    assert handin.files == {}
    assert "old/pkg/ops.py" in problem(handin) and "new/pkg/ops.py" in problem(handin)


def test_a_file_at_the_wrong_place_is_named_with_its_right_one(opened):
    flat = {"ops.py": SOURCE, "P9/Model.py": SOURCE, "p9/answers.md": FILES["p9/answers.md"]}
    handin = opened(tar_gz(flat))
    said = "\n".join(handin.problems)
    assert "ops.py was found, but is looked for as pkg/ops.py" in said
    assert "P9/Model.py was found, but is looked for as p9/model.py" in said
    assert list(handin.files) == ["p9/answers.md"]


def test_a_folder_of_sources_goes_before_one_of_artifacts(opened):
    sources = {f"hw/{name}": data for name, data in FILES.items() if "results" not in name}
    handin = opened(tar_gz({"backup/results/p9/t.csv": b"1\n"} | sources))
    assert "pkg/ops.py" in handin.files and "results/p9/t.csv" not in handin.files
    assert "backup/results/p9/t.csv was found, but is looked for as results" in problem(handin)


def test_a_folder_with_one_archive_stands_for_it(tmp_path):
    (tmp_path / "up.tar.gz").write_bytes(tar_gz(FILES))
    (tmp_path / "._up.tar.gz").write_bytes(b"junk")
    handin = open_handin(tmp_path, TABLE)
    assert handin.files == FILES and handin.name == "up.tar.gz" and handin.sha256
    (tmp_path / "second.zip").write_bytes(zip_of(FILES))
    handin = open_handin(tmp_path, TABLE)
    assert handin.files == {} and "none of the assignment's files" in problem(handin)
    assert "second.zip" in handin.notes[0] and "up.tar.gz" in handin.notes[0]


def test_strays_are_ignored_and_the_staff_learn_of_them(opened):
    strays = ["conftest.py", "tests/test_x.py", "torch.py", "pkg/__init__.py", "p9/random.py"]
    strays += ["p9/challenges/__init__.py", "results/p9/run.nsys-rep", "results/p9/x.pickle"]
    handin = opened(tar_gz(FILES | dict.fromkeys(strays, b"x")))
    assert handin.files == FILES and handin.problems == []
    assert all(name in " ".join(handin.notes) for name in strays)


def test_what_systems_leave_behind_is_not_even_mentioned(opened):
    junk = ["pkg/._ops.py", ".DS_Store", "__MACOSX/._a.csv", "results/p9/._t.csv"]
    junk += ["pkg/__pycache__/ops.pyc", ".git/config", "Thumbs.db"]
    manifest = {"manifest.json": sample_manifest(FILES)}
    handin = opened(tar_gz(FILES | dict.fromkeys(junk, b"x") | manifest))
    assert (handin.files, handin.problems, handin.notes) == (FILES, [], [])


# ---- Names and kinds that are refused ---------------------------------------------------------


@pytest.mark.parametrize(
    "name, words",
    [
        ("/etc/cron.d/x.csv", "absolute"),
        ("C:/x.csv", "absolute"),
        ("../out-evil/x.csv", ".."),
        ("results/p9/../../../x.csv", ".."),
        ("results/p9/a\nb.csv", "control"),
        ("results/p9/a\x1b[31m.csv", "control"),
        ("results/p9/a\u202efdp.csv", "invisible"),
        ("results/p9/\udcff.csv", "UTF-8"),
        ("results/p9/" + "x" * 300 + ".csv", "too long"),
    ],
)
@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_a_bad_name_is_refused_by_name_and_the_rest_counts(opened, name, words, format):
    handin = opened(with_entry(entry(name, b"a\n1\n"), format=format))
    assert handin.files == FILES
    assert words in problem(handin)
    assert problem(handin).isprintable()


@pytest.mark.parametrize(
    "kind, words",
    [
        (tarfile.SYMTYPE, "symbolic link"),
        (tarfile.LNKTYPE, "hard link"),
        (tarfile.CHRTYPE, "device"),
        (tarfile.BLKTYPE, "device"),
        (tarfile.FIFOTYPE, "pipe"),
        (b"V", "unknown type"),
    ],
)
def test_a_member_that_is_no_file_is_refused_by_name(opened, kind, words):
    odd = entry("results/p9/odd.csv", kind=kind, linkname="/etc/passwd")
    handin = opened(with_entry(odd, entry("results/p9/last.csv", b"1\n")))
    assert handin.files == FILES | {"results/p9/last.csv": b"1\n"}
    assert words in problem(handin) and "results/p9/odd.csv" in problem(handin)


def test_a_link_to_a_folder_and_a_file_through_it_reach_nothing(opened, tmp_path):
    link = entry("results/p9", kind=tarfile.SYMTYPE, linkname=str(tmp_path))
    handin = opened(tar_gz([link, entry("results/p9/a.csv", b"1\n"), entry("pkg/ops.py", SOURCE)]))
    assert "results/p9 was left out" in "".join(handin.problems)
    assert handin.files["results/p9/a.csv"] == b"1\n"  # as bytes, which harm nobody


def test_a_file_replaced_by_a_link_counts_neither_way(opened):
    link = entry("pkg/ops.py", kind=tarfile.SYMTYPE, linkname="/etc/passwd")
    assert "pkg/ops.py" not in opened(with_entry(link)).files


def test_sparse_files_are_refused_and_what_follows_is_read(opened):
    old = bytearray(header("results/p9/s.csv", tarfile.GNUTYPE_SPARSE, 512))
    old[482] = 1  # its map goes on in another block
    old[148:156] = b"        "
    old[148:156] = b"%06o\0 " % sum(old)
    plain = tar_of({"results/p9/last.csv": b"1\n"})
    handin = opened(gzip.compress(bytes(old) + bytes(512) + b"d" * 512 + plain))
    assert handin.files == {"results/p9/last.csv": b"1\n"}
    assert "s.csv was left out: it is a sparse file" in handin.problems[0]
    pax = entry("GNUSparseFile.0/x.csv", b"data")
    pax[0].pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.name": "results/p9/q.csv"}
    assert "results/p9/q.csv was left out: it is a sparse file" in problem(opened(with_entry(pax)))


def test_a_name_that_is_there_twice_counts_only_if_both_agree(opened):
    same = opened(with_entry(entry("./pkg//ops.py", SOURCE)))
    assert same.files == FILES and same.problems == []
    differ = opened(with_entry(entry("./pkg/ops.py", b"x = 1\n"), entry("pkg/ops.py", SOURCE)))
    assert "pkg/ops.py" not in differ.files
    assert "pkg/ops.py was left out: it is there more than once" in differ.problems[0]


def test_names_that_differ_in_case_only_do_not_count(opened):
    handin = opened(with_entry(entry("results/p9/T.csv", b"1\n")))
    assert not {"results/p9/T.csv", "results/p9/t.csv"} & set(handin.files)
    assert "upper and lower case" in handin.problems[0]


# ---- Amounts ----------------------------------------------------------------------------------


def test_what_is_too_large_is_left_out_by_name_and_size(opened):
    handin = opened(with_entry(entry("results/p9/big.csv", bytes(60_000))))
    assert handin.files == FILES
    assert "results/p9/big.csv" in problem(handin) and "0.1 MB" in problem(handin)


def test_all_together_have_a_limit(opened):
    many = {f"results/p9/{n}.csv": bytes(45_000) for n in range(8)}
    handin = opened(tar_gz(FILES | many))
    assert sum(map(len, handin.files.values())) <= TABLE.handin.max_total_bytes
    assert "used up" in handin.problems[0]
    handin = opened(tar_gz(FILES | {f"results/p9/{n}.csv": b"1" for n in range(80)}))
    assert len(handin.files) == TABLE.handin.max_entries


def test_a_flood_of_entries_ends(opened):
    flood = [entry(f"f/{n}", kind=tarfile.DIRTYPE) for n in range(700)]
    for data in (tar_gz(flood), zip_of({f"{n}.txt": b"" for n in range(700)})):
        assert "more than 200 entries" in problem(opened(data))


@pytest.mark.parametrize("gzipped", [True, False])
def test_a_bomb_costs_no_memory(opened, gzipped):
    stray = header("recording.nsys-rep", tarfile.REGTYPE, 300 << 20)
    out = io.BytesIO()
    with gzip.open(out, "wb", compresslevel=1) if gzipped else io.BytesIO() as file:
        file.write(tar_of(FILES).rstrip(b"\0") + bytes(-len(tar_of(FILES).rstrip(b"\0")) % 512))
        file.write(stray)
        for _ in range(2 if gzipped else 1):
            file.write(bytes(4 << 20))
        data = out.getvalue() if gzipped else file.getvalue()
    limits = Limits(archive_bytes=1 << 23, unpacked_bytes=1 << 20, entries=200)
    tracemalloc.start()
    handin = opened(data if not gzipped else out.getvalue(), limits=limits)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert handin.files == FILES
    assert "unpacks to more than 1 MB" in problem(handin)
    assert peak_bytes < 4 << 20


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, b"L", b"K"])
@pytest.mark.parametrize("claimed", [1 << 30, -512])
def test_a_header_of_any_size_is_not_believed(opened, kind, claimed):
    handin = opened(gzip.compress(header("h", kind, claimed) + bytes(2048)))
    assert handin.files == {} and "header" in problem(handin)


def test_a_negative_size_ends_the_reading(opened):
    data = tar_of({"pkg/ops.py": SOURCE})[:1024] + header("n.csv", tarfile.REGTYPE, -1024)
    handin = opened(gzip.compress(data + bytes(1024)))
    assert "negative" in handin.problems[0]
    assert handin.files == {"pkg/ops.py": SOURCE}


@pytest.mark.parametrize("size", ["-1", "9" * 400, "1e3", "99999999999"])
def test_an_extended_header_that_claims_a_size_is_not_believed(opened, size):
    odd = entry("results/p9/o.csv", b"1\n")
    odd[0].pax_headers = {"size": size}
    handin = opened(with_entry(odd))
    assert handin.files == FILES and handin.problems


def test_a_zip_that_lies_about_sizes_is_not_believed(opened):
    whole = zip_of(FILES | {"results/p9/z.csv": bytes(45_000)})
    lying = whole.replace((45_000).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    assert "damaged" in opened(lying).problems[0] or "size" in opened(lying).problems[0]


def test_encrypted_and_unusual_zip_members_are_refused_by_name(opened):
    data = bytearray(zip_of({"pkg/ops.py": SOURCE}))
    data[data.rfind(b"PK\1\2") + 8] |= 1
    assert "pkg/ops.py was left out: it is a encrypted" in opened(bytes(data)).problems[0]
    packed = zip_of({"pkg/ops.py": SOURCE}, zipfile.ZIP_LZMA)
    assert "unusual" in opened(packed).problems[0]


def test_a_zip_with_links_or_backslashes(opened):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        link = zipfile.ZipInfo("results/p9/l.csv")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
        archive.writestr("pkg\\ops.py", SOURCE)
        archive.writestr("..\\x.csv", "1")
    handin = opened(out.getvalue())
    assert handin.files == {"pkg/ops.py": SOURCE}
    assert "symbolic link" in "".join(handin.problems) and "`..`" in "".join(handin.problems)


# ---- Damage -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data, words",
    [
        (b"", "empty (0 bytes)"),
        (b"\xfd7zXZ\0" + bytes(100), "xz archive"),
        (b"BZh91AY" + bytes(100), "bzip2"),
        (b"<!DOCTYPE html>", "web page"),
        (b"%PDF-1.7", "PDF"),
        (b"hello", "something else"),
        (bytes(3000), "something else"),
        (b"\x1f\x8b", "cut short"),
        (b"PK\3\4 and no more", "cut short"),
        (gzip.compress(b"no archive" * 100, mtime=0), "damaged"),
        (gzip.compress(b"", mtime=0), "none of the assignment's files"),
        (tar_gz({}), "none of the assignment's files"),
        (zip_of({}), "none of the assignment's files"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_hand_in_is_named(opened, data, words):
    handin = opened(data)
    assert handin.files == {} and words in problem(handin)
    assert "make handin" in problem(handin)


def test_an_archive_within_an_archive_is_not_opened(opened):
    handin = opened(gzip.compress(tar_gz(FILES)))
    assert handin.files == {} and handin.problems


def test_a_hand_in_cut_short_keeps_its_whole_files_and_says_so(opened):
    noise = random.Random(1).randbytes(40_000)
    whole = tar_gz(FILES | {"results/p9/t.png": noise})
    handin = opened(whole[: len(whole) // 2])
    assert handin.files == FILES
    assert "cut short" in problem(handin) and "4 files of it were read" in problem(handin)
    assert "cut short" in problem(opened(tar_of(FILES | {"results/p9/t.png": noise})[:20_000]))


def test_a_flipped_bit_is_noticed(opened):
    whole = bytearray(tar_gz(FILES))
    whole[-6] ^= 1  # in the checksum
    assert "damaged" in opened(bytes(whole)).problems[0]
    header_hit = bytearray(tar_of(FILES))
    header_hit[1024 + 10] ^= 1
    handin = opened(bytes(header_hit))
    assert "header in it is damaged" in handin.problems[0] and len(handin.files) == 1


def test_gzip_in_parts_is_read_and_rubbish_after_the_end_ignored(opened):
    tar = tar_of(FILES)
    parts = gzip.compress(tar[:700]) + gzip.compress(tar[700:])
    assert opened(parts).files == FILES
    for odd in (tar_gz(FILES) + b"rubbish", tar_gz(FILES) + tar_gz({"pkg/ops.py": b"x"})):
        handin = opened(odd)
        assert handin.files == FILES and handin.problems == []
        assert "ignored" in " ".join(handin.notes)
    assert opened(tar_gz(FILES) + bytes(512)).notes == opened(tar_gz(FILES)).notes
    assert "gzip parts" in problem(opened(tar_gz({}) + gzip.compress(b"") * 200))


def test_an_upload_that_cannot_be_read_is_our_fault(tmp_path):
    with pytest.raises(OSError):
        open_handin(tmp_path / "absent.tar.gz", TABLE)


# ---- Text -------------------------------------------------------------------------------------


def test_line_ends_and_byte_order_marks_are_accepted(opened):
    odd = FILES | {"pkg/ops.py": b"\xef\xbb\xbfa = 1\r\nb = 2\r\n", "results/p9/t.png": b"\r\n\x00"}
    handin = opened(tar_gz(odd | {"manifest.json": sample_manifest(odd)}))
    assert handin.problems == [] and handin.notes == []
    assert handin.files == odd
    assert handin.for_running()["pkg/ops.py"] == b"a = 1\nb = 2\n"
    assert handin.for_running()["results/p9/t.png"] == b"\r\n\x00"


@pytest.mark.parametrize(
    "name, data, words",
    [
        ("pkg/ops.py", b"a = 1\r\nb = '\0'\n", "pkg/ops.py, line 2: holds a NUL"),
        ("pkg/ops.py", b"a = 1\n\n# caf\xe9\n", "pkg/ops.py, line 3: not UTF-8"),
        ("pkg/ops.py", b"# \xe9 \n", "pkg/ops.py, line 1: not UTF-8"),
        ("pkg/ops.py", "a = 1\n".encode("utf-16"), "pkg/ops.py is saved as UTF-16"),
        ("pkg/ops.py", b"# coding: klingon\na = 1\n", "pkg/ops.py, line 1: not UTF-8"),
        ("p9/answers.md", b"Name\ncaf\xe9\n", "p9/answers.md, line 2: not UTF-8"),
        ("pkg/ops.py", b"a = 1\n<<<<<<< HEAD\n", "pkg/ops.py, line 2: a merge conflict"),
        ("results/p9/t.csv", b"m\r\n=======\r\n", "results/p9/t.csv, line 2: a merge conflict"),
    ],
)
def test_a_text_nobody_can_read_is_named_with_its_line(opened, name, data, words):
    assert words in problem(opened(tar_gz(FILES | {name: data})))


@pytest.mark.parametrize(
    "name, data",
    [
        ("pkg/ops.py", b"# -*- coding: latin-1 -*-\n# caf\xe9\n"),
        ("pkg/ops.py", b'"""Title\n=======\n"""\nx = "<<<<<<< HEAD"\n'),
        ("p9/answers.md", b"Title\n=======\n"),
        ("results/p9/t.csv", b"a\n========\n"),
    ],
)
def test_a_good_text_is_not_accused(opened, name, data):
    assert opened(tar_gz(FILES | {name: data})).problems == []


def test_missing_files_are_named(opened):
    handin = opened(tar_gz({"pkg/ops.py": SOURCE, "p9/answers.md": b"x"}))
    assert "p9/model.py" in problem(handin)


# ---- Manifest ---------------------------------------------------------------------------------


def test_a_manifest_that_lies_is_shown_to_the_staff_and_changes_nothing(opened):
    listed = {"pkg/ops.py": b"other", "results/p9/gone.csv": b"1"}
    manifest = {"manifest.json": sample_manifest(listed, release="6")}
    handin = opened(tar_gz(FILES | manifest))
    said = "\n".join(handin.notes)
    assert handin.files == FILES and handin.problems == []
    assert "changed after packing, by the manifest: pkg/ops.py" in said
    assert "removed after packing, by the manifest: results/p9/gone.csv" in said
    assert "added after packing" in said and "release 6" in said


@pytest.mark.parametrize(
    "manifest",
    [
        b"",
        b"\xff\xfe",
        b"[1]",
        b'{"files": 3}',
        b'{"files": [{"path": [], "sha256": 1}]}',
        b'{"files": [], "x": NaN}',
        b"[" * 100_000,
        b'{"files": [], "n": ' + b"9" * 10_000 + b"}",
    ],
)
def test_a_manifest_that_cannot_be_read_is_only_noted(opened, manifest):
    handin = opened(tar_gz(FILES | {"manifest.json": manifest}))
    assert handin.files == FILES and handin.problems == [] and handin.manifest is None
    assert "manifest cannot be read" in handin.notes[0]


def test_the_hand_in_of_another_assignment_is_pointed_out(opened):
    manifest = {"manifest.json": sample_manifest(FILES, assignment="p8\x1b[31m")}
    assert "assignment p8" in problem(opened(tar_gz(FILES | manifest)))
    strange = {"manifest.json": sample_manifest(FILES, student={"a": "\x1b" * 999})}
    assert opened(tar_gz(FILES | strange)).student.isprintable()


# ---- Anything at all ---------------------------------------------------------------------------

ORIGINAL = [
    tar_gz(FILES | {"manifest.json": sample_manifest(FILES)}),
    tar_of(FILES | {"results/p9/" + "n" * 120 + ".csv": b"1"}),
    tar_of(FILES, format=tarfile.GNU_FORMAT),
    zip_of(FILES),
]


@seed(568)
@settings(
    max_examples=400,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    original=st.sampled_from(ORIGINAL),
    hits=st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=8)), max_size=6),
    cut=st.one_of(st.none(), st.floats(0, 1)),
    gzipped=st.booleans(),
)
def test_a_mutated_hand_in_is_read_or_refused_in_words(tmp_path, original, hits, cut, gzipped):
    data = bytearray(original)
    for place, bytes_there in hits:
        at = int(place * (len(data) - 1))
        data[at : at + len(bytes_there)] = bytes_there
    if cut is not None:
        del data[int(cut * len(data)) :]
    path = tmp_path / "fuzzed"
    path.write_bytes(gzip.compress(bytes(data), 1, mtime=0) if gzipped else bytes(data))
    handin = open_handin(path, TABLE)
    assert [p.name for p in tmp_path.iterdir()] == ["fuzzed"]
    assert all(p.isprintable() and len(p) < 3000 for p in handin.problems + handin.notes)
    for name, content in handin.files.items():
        assert name in FILES or name.startswith(("results/p9/", "p9/challenges/"))
        assert ".." not in name and len(content) <= TABLE.handin.max_artifact_bytes
    json.dumps(handin.manifest, allow_nan=False)


def test_the_limits_follow_the_table():
    limits = limits_of(TABLE)
    assert limits.archive_bytes == TABLE.handin.max_total_bytes
    assert limits.entries > TABLE.handin.max_entries
