"""tuspy, the client that Python programs use."""

import pytest

from tests.clients.conftest import HOSTILE

client = pytest.importorskip("tusclient.client", reason="tuspy is not installed: make test does.")
filestorage = pytest.importorskip("tusclient.storage.filestorage")

MIB = 2**20


@pytest.fixture
def uploader(portal):
    """uploader(file, path, ...) is tuspy's uploader for this path of the dataset."""

    def make(file, path: str, **options):
        metadata = {"dataset": portal.dataset, "relativePath": path, "filename": file.name}
        tus = client.TusClient(portal.endpoint, headers=portal.client_headers)
        return tus.uploader(str(file), metadata=metadata, retries=0, **options)

    return make


def test_a_whole_file_in_one_request(portal, uploader, new_file):
    file, content = new_file(2 * MIB + 5)
    uploader(file, "py/whole.bin").upload()
    assert portal.has("py/whole.bin", content)


def test_a_hostile_name_stays_as_it_is(portal, uploader, new_file):
    file, content = new_file(3 * MIB)
    uploader(file, f"py/{HOSTILE}", chunk_size=MIB).upload()
    assert portal.has(f"py/{HOSTILE}", content)


def test_an_empty_file(portal, uploader, new_file):
    file, content = new_file(0)
    uploader(file, "py/empty.bin").upload()
    assert portal.has("py/empty.bin", content)


def test_another_process_goes_on_where_the_first_was(portal, uploader, new_file, tmp_path):
    file, content = new_file(6 * MIB)
    options = {"chunk_size": MIB, "store_url": True}
    first = uploader(
        file, "py/cut.bin", url_storage=filestorage.FileStorage(str(tmp_path / "urls")), **options
    )
    first.upload(stop_at=2 * MIB)
    second = uploader(
        file, "py/cut.bin", url_storage=filestorage.FileStorage(str(tmp_path / "urls")), **options
    )
    assert (second.url, second.offset) == (first.url, 2 * MIB)
    second.upload()
    assert portal.has("py/cut.bin", content)


def test_the_offset_is_kept_when_the_portal_is_killed(portal, uploader, new_file):
    file, content = new_file(4 * MIB)
    first = uploader(file, "py/killed.bin", chunk_size=MIB)
    first.upload(stop_at=2 * MIB)
    portal.kill()
    portal.start()
    second = uploader(file, "py/killed.bin", chunk_size=MIB, url=first.url)
    assert second.offset == 2 * MIB
    second.upload()
    assert portal.has("py/killed.bin", content)


def test_checksums_of_sha1(portal, uploader, new_file):
    portal.must_offer("checksum")
    file, content = new_file(3 * MIB)
    uploader(file, "py/checked.bin", chunk_size=MIB, upload_checksum=True).upload()
    assert portal.has("py/checked.bin", content)
