"""One file by tus creation."""

from portal.base.clock import db_now
from portal.base.commits import light_atomic
from staging.entries import Entry, FilePlan
from staging.files import declare_files
from staging.models import Dataset, Upload
from staging.single import list_one
from staging.states import UploadState
from staging.uploads import address_of, new_upload, renew_right


def create_upload(
    *, dataset: Dataset, entry: Entry, actor: str, metadata: str = ""
) -> tuple[Upload, str]:
    """One file by tus creation: (upload, address). An empty file's upload is complete at once."""
    listed = list_one(dataset=dataset, entry=entry, actor=actor, metadata=metadata)
    if listed is not None:
        return listed, address_of(listed)
    with light_atomic():
        (plan,) = declare_files(dataset=dataset, entries=[entry], actor=actor)
        upload = plan.upload
        if upload is None:
            upload = _complete_upload(plan, dataset, actor)
        if metadata:
            Upload.objects.filter(pk=upload.pk).update(metadata=metadata)
    return upload, address_of(upload)


def _complete_upload(plan: FilePlan, dataset: Dataset, actor: str) -> Upload:
    file = plan.file
    assert file is not None  # noqa: S101  strict plans carry a file
    known = Upload.objects.filter(file=file).first()
    if known is not None:
        renew_right(known, actor)
        return known
    upload = new_upload(
        file=file, team_id=dataset.team_id, length=file.size, holder=actor, at=db_now()
    )
    upload.offset, upload.state = upload.length, UploadState.COMPLETE
    upload.save()
    return upload
