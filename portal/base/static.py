"""Static files under names that carry their hash."""

from whitenoise.storage import CompressedManifestStaticFilesStorage


class HashedStorage(CompressedManifestStaticFilesStorage):
    """Also rewrites the imports between JavaScript modules, which Django leaves alone."""

    support_js_module_import_aggregation = True
