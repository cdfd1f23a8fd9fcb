"""The verbs of staging, as the other apps call them. Each lives in the module named here."""

from staging.creation import create_upload
from staging.datasets import (
    create_dataset,
    discard_files,
    hold,
    remove_file,
    seal_dataset,
    unhold,
)
from staging.digests import manifest_digest
from staging.entries import Entry, FilePlan
from staging.files import declare_files
from staging.reading import open_file, reader_of, store_bytes, zip_of
from staging.receive import receive
from staging.retention import delete_dataset, expire_uploads, purge_dataset, set_expiry
from staging.selection import chosen_files
from staging.uploads import address_of, terminate_upload
from staging.verification import verify_dataset

__all__ = [
    "Entry",
    "FilePlan",
    "address_of",
    "chosen_files",
    "create_dataset",
    "create_upload",
    "declare_files",
    "delete_dataset",
    "discard_files",
    "expire_uploads",
    "hold",
    "manifest_digest",
    "open_file",
    "purge_dataset",
    "reader_of",
    "receive",
    "remove_file",
    "seal_dataset",
    "set_expiry",
    "store_bytes",
    "terminate_upload",
    "unhold",
    "verify_dataset",
    "zip_of",
]
