"""Attacks on the code upload: nothing but plain files under plain names ever passes."""

import io
import stat
import zipfile

import pytest
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import SimpleUploadedFile

from jobs.code import MOST_ENTRIES, read_folder, read_zip


def zip_of(*entries: tuple[object, bytes], **options) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, **options) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return buffer.getvalue()


def read(content: bytes):
    return read_zip(SimpleUploadedFile("c.zip", content))


def refusal(content: bytes) -> str:
    with pytest.raises(ValidationError) as caught:
        read(content)
    assert len(caught.value.messages) == 1
    return caught.value.messages[0]


def special(name: str, kind: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system = 3
    info.external_attr = (kind | 0o777) << 16
    return info


def test_a_plain_zip():
    run = special("bin/run.sh", stat.S_IFREG)
    files = read(zip_of(("main.py", b"one"), ("lib/", b""), (run, b"two"), ("empty", b"")))
    assert [(f.path, f.size, f.executable) for f in files] == [
        ("main.py", 3, False),
        ("bin/run.sh", 3, True),
        ("empty", 0, False),
    ]
    assert files[1].open().read() == b"two"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("../evil", "“../evil” leads out of the folder of the code or is not a plain path."),
        (
            "a/../../evil",
            "“a/../../evil” leads out of the folder of the code or is not a plain path.",
        ),
        ("./a", "“./a” leads out of the folder of the code or is not a plain path."),
        ("a//b", "“a//b” leads out of the folder of the code or is not a plain path."),
        (
            "/etc/cron.d/x",
            "“/etc/cron.d/x” is an absolute or a Windows path; code needs relative ones.",
        ),
        ("C:\\x", "“C:\\x” is an absolute or a Windows path; code needs relative ones."),
        ("a\\..\\b", "“a\\..\\b” is an absolute or a Windows path; code needs relative ones."),
        ("x" * 256, "“" + "x" * 79 + "…” is too long for a file name."),
        ("a\nb", "A file name in the code holds U+000A, which cannot be seen. Type it again."),
        (
            "\u202egnp.sh",
            "A file name in the code holds U+202E (right-to-left override), which cannot be seen. "
            "Type it again.",
        ),
    ],
)
def test_names_that_are_refused(name, sentence):
    assert refusal(zip_of((name, b"x"))) == sentence


def test_a_nul_in_a_name():
    content = zip_of(("aXb", b"x")).replace(b"aXb", b"a\0b")
    assert refusal(content) == "The code holds a file without a usable name."


def test_names_that_collide():
    with pytest.warns(UserWarning, match="Duplicate name"):
        twice = zip_of(("a", b"1"), ("a", b"2"))
    assert refusal(twice) == "“a” is in the code twice."
    assert (
        refusal(zip_of(("Makefile", b"1"), ("makefile", b"2")))
        == "“makefile” is in the code twice."
    )
    assert (
        refusal(zip_of(("a", b"1"), ("a/b", b"2")))
        == "“a” is both a file and a folder in the code."
    )


@pytest.mark.parametrize(
    "kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK]
)
def test_links_and_special_files(kind):
    assert refusal(zip_of((special("x", kind), b"/etc/passwd"))) == (
        "“x” is a link or a special file; only plain files are accepted."
    )


def test_encrypted_entries():
    content = bytearray(zip_of(("a", b"x")))
    content[6] |= 1
    content[content.rfind(b"PK\1\2") + 8] |= 1
    assert refusal(bytes(content)) == "“a” is encrypted. Send a zip without a password."


def test_declared_size_beyond_the_limit(settings):
    settings.LARGEST_CODE_BYTES = 1000
    bomb = zip_of(("zeros", b"\0" * 100_000))
    assert refusal(bomb) == "The code is 100,000 bytes; at most 1,000 are accepted."


def test_real_size_beyond_the_declared(settings):
    settings.LARGEST_CODE_BYTES = 1000
    bomb = zip_of(("zeros", b"\0" * 100_000))
    lie = bomb.replace((100_000).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    assert lie != bomb
    assert refusal(lie) in {
        "“zeros” in the zip is damaged.",
        "The code is 100,000 bytes; at most 1,000 are accepted.",
    }


def test_many_small_bombs_add_up(settings):
    settings.LARGEST_CODE_BYTES = 1000
    assert "at most 1,000" in refusal(zip_of(*((f"f{n}", b"\0" * 200) for n in range(10))))


def test_too_many_entries():
    content = zip_of(*((f"{n}", b"") for n in range(MOST_ENTRIES + 1)))
    assert refusal(content) == "The code has 10,001 entries; at most 10,000 are accepted."


def test_an_index_that_claims_to_be_huge():
    content = bytearray(zip_of(("a", b"x")))
    end = content.rfind(b"PK\5\6")
    content[end + 12 : end + 16] = b"\xff\xff\xff\x7f"
    assert refusal(bytes(content)) == "This zip lists too many entries; at most 10,000 fit."


@pytest.mark.parametrize("content", [b"", b"x", b"PK\3\4", b"PK\5\6", b"MZ" * 5000, b"\0" * 70_000])
def test_what_is_no_zip(content):
    assert refusal(content) == "This is not a zip file, or it is damaged."


def outcome(content: bytes) -> list[str] | str:
    """The names that were read, or the one sentence of the refusal."""
    try:
        return [file.path for file in read(content)]
    except ValidationError as error:
        (sentence,) = error.messages
        return sentence


def test_every_cut_and_every_flipped_byte_is_refused_or_read():
    whole = zip_of(("main.py", b"print('hello')" * 9), ("lib/a.py", b"x"))
    broken = [whole[:n] for n in range(len(whole))]
    broken += [whole[:n] + bytes([whole[n] ^ 0xFF]) + whole[n + 1 :] for n in range(len(whole))]
    outcomes = [outcome(content) for content in broken]
    assert len(broken) > len(whole)
    assert all(isinstance(names, list) or names.endswith(".") for names in outcomes)


def test_an_empty_zip_and_one_of_folders_only():
    assert refusal(zip_of()) == "There is no file in the code."
    assert refusal(zip_of(("a/", b""))) == "There is no file in the code."


def sent(name: str, content: bytes = b"x") -> SimpleUploadedFile:
    file = SimpleUploadedFile("0", content)
    file.sent_name = name
    return file


def test_a_folder_loses_its_own_name_only():
    files = read_folder([sent("proj/a.py"), sent("proj/lib/b.py")])
    assert [f.path for f in files] == ["a.py", "lib/b.py"]
    files = read_folder([sent("a.py"), sent("proj/b.py")])
    assert [f.path for f in files] == ["a.py", "proj/b.py"]


def test_a_folder_too_large_or_too_full(settings):
    settings.LARGEST_CODE_BYTES = 3
    with pytest.raises(ValidationError, match="The code is 4 bytes; at most 3 are accepted"):
        read_folder([sent("p/a", b"xx"), sent("p/b", b"xx")])
    with pytest.raises(ValidationError, match="10,001 entries"):
        read_folder([sent("p/a", b"")] * (MOST_ENTRIES + 1))
