"""Which door opens which kind of dataset: people fill inputs, leases outputs, the form code."""

import io

import pytest
from django.test import Client

from portal.base.errors import Conflict
from staging import batches, services, uploads
from staging.keys import read_key, upload_key
from staging.models import Dataset, Upload
from staging.states import DatasetKind, DatasetState

pytestmark = [pytest.mark.django_db, pytest.mark.db]
OTHERS = [DatasetKind.OUTPUT, DatasetKind.CODE]
TUS = {"HTTP_TUS_RESUMABLE": "1.0.0", "HTTP_UPLOAD_LENGTH": "3"}
NAMED = {"HTTP_UPLOAD_METADATA": "filename YS5iaW4="}


@pytest.fixture(params=OTHERS)
def closed(request, team) -> Dataset:
    """A dataset that takes files, and none from people."""
    made = services.create_dataset(team=team, name="D", actor="system", kind=request.param)
    Dataset.objects.filter(pk=made.pk).update(state=DatasetState.TRANSFERRING)
    made.refresh_from_db()
    return made


@pytest.fixture
def output(team) -> Dataset:
    made = services.create_dataset(team=team, name="O", actor="system", kind=DatasetKind.OUTPUT)
    services.declare_files(dataset=made, entries=[services.Entry("there", 3)], actor="lease:l1")
    return made


def test_no_page_or_address_of_a_person_opens_it(owner_client, closed):
    at = f"/staging/{closed.code}"
    listing = {"files": [{"path": "a", "size": 1}]}
    assert owner_client.post(f"{at}/key").status_code == 409
    assert owner_client.get(f"{at}/unfinished").status_code == 409
    assert owner_client.post(f"{at}/manifest", listing, "application/json").status_code == 409
    assert owner_client.post(f"{at}/pack", b"", "application/x-e31-pack").status_code == 409
    assert owner_client.post(f"{at}/remove", {"path": "a"}).status_code == 409
    assert owner_client.post(f"{at}/seal").status_code == 409
    assert owner_client.post(f"{at}/upload", {"files": io.BytesIO(b"x")}).status_code == 409
    assert not closed.files.exists()


def test_no_key_opens_it(owner, closed):
    key = upload_key(closed, owner.email)
    assert read_key(key) is None
    made = Client().post("/tus/", **TUS, **NAMED, HTTP_AUTHORIZATION=f"Bearer {key}")
    assert made.status_code == 401
    part = Client().post(
        "/tus/", **TUS, HTTP_UPLOAD_CONCAT="partial", HTTP_AUTHORIZATION=f"Bearer {key}"
    )
    assert (part.status_code, Upload.objects.count()) == (401, 0)


@pytest.mark.parametrize("path", ["new", "there"])
def test_no_verb_opens_an_output_for_a_person(owner, output, path):
    entry = services.Entry(path, 3)
    with pytest.raises(Conflict, match="from a job"):
        services.declare_files(dataset=output, entries=[entry], actor=owner.email)
    with pytest.raises(Conflict, match="from a job"):
        services.create_upload(dataset=output, entry=entry, actor=owner.email)
    with pytest.raises(Conflict, match="from a job"):
        batches.settle_arrivals(
            dataset=output, arrivals=[batches.Arrival(path, 3, "0" * 64)], actor=owner.email
        )
    with pytest.raises(Conflict, match="from a job"):
        services.remove_file(dataset=output, path=path, actor=owner.email)
    assert Upload.objects.get().holder == "lease:l1"


def test_a_lease_goes_on_with_what_another_lease_left(output, monkeypatch):
    monkeypatch.setitem(uploads._holders, "lease", lambda code: code == "l2")
    entry = services.Entry("there", 3)
    (plan,) = services.declare_files(dataset=output, entries=[entry], actor="lease:l2")
    assert (plan.state, plan.upload.holder) == ("send", "lease:l2")


def test_what_a_lease_held_is_never_handed_to_a_person(output, owner, monkeypatch):
    monkeypatch.setitem(uploads._holders, "lease", lambda code: False)
    upload = Upload.objects.get()
    before = upload.token_hash
    uploads.renew_right(upload, owner.email)
    upload.refresh_from_db()
    assert (upload.holder, upload.token_hash) == ("lease:l1", before)


def test_the_form_of_a_job_stores_its_code(team, put):
    code = services.create_dataset(team=team, name="C", actor="system", kind=DatasetKind.CODE)
    assert put(code, "main.py", b"print()").state == "uploaded"
