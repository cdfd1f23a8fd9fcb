"""From rows to the reader of a source. Secrets are opened here, late, and go nowhere else."""

from staging.models import Source
from staging.sync.connections import bucket_of
from staging.sync.errors import SourceRefuses
from staging.sync.folders import FolderReader
from staging.sync.readers import Reader
from staging.sync.s3 import S3Reader
from staging.sync.states import SourceKind
from staging.sync.urls import UrlReader


def reader_of(source: Source) -> Reader:
    """Raises SourceRefuses where what it needs is no longer there."""
    match source.kind:
        case SourceKind.S3:
            assert source.connection is not None  # noqa: S101  a constraint of its verb
            return S3Reader(bucket_of(source.connection), source.prefix)
        case SourceKind.FOLDER:
            if source.folder is None:
                raise SourceRefuses("The operator has taken this server folder away.")
            return FolderReader(source.folder.path, source.prefix)
        case _:
            return UrlReader(source.addresses)
