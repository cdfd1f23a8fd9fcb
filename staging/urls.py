"""Addresses of staging."""

from django.urls import path

from staging import api, downloads, tus, views
from staging.sync import pages

urlpatterns = [
    path("tus/", tus.tus_create, name="tus_create"),
    path("tus/<str:code>/<str:token>", tus.tus_upload, name="tus_upload"),
    path("tus/<str:code>/<str:token>/digests", tus.tus_prefix, name="tus_prefix"),
    path("tus/<path:rest>", tus.tus_nothing),
    path("staging/", views.staging, name="staging"),
    path("staging/new", views.dataset_new, name="dataset_new"),
    path("staging/connections/", pages.connection_list, name="connections"),
    path("staging/connections/new", pages.connection_new, name="connection_new"),
    path("staging/connections/<str:code>/", pages.connection, name="connection"),
    path(
        "staging/connections/<str:code>/change", pages.connection_change, name="connection_change"
    ),
    path("staging/connections/<str:code>/test", pages.connection_test, name="connection_test"),
    path(
        "staging/connections/<str:code>/remove", pages.connection_remove, name="connection_remove"
    ),
    path("staging/sync/", pages.sync_choose, name="sync_choose"),
    path("staging/sync/s3/<str:code>", pages.sync_s3, name="sync_s3"),
    path("staging/sync/folder/<str:code>", pages.sync_folder, name="sync_folder"),
    path("staging/sync/addresses", pages.sync_addresses, name="sync_addresses"),
    path("staging/<str:code>/", views.dataset, name="dataset"),
    path("staging/<str:code>/live", views.dataset_live, name="dataset_live"),
    path("staging/<str:code>/sync/cancel/confirm", pages.sync_cancel, name="sync_cancel"),
    path("staging/<str:code>/sync/<str:verb>", pages.sync_act, name="sync_act"),
    path("staging/<str:code>/upload", views.dataset_upload, name="dataset_upload"),
    path("staging/<str:code>/remove", views.dataset_remove, name="dataset_remove"),
    path("staging/<str:code>/keep", views.dataset_keep, name="dataset_keep"),
    path("staging/<str:code>/delete", views.dataset_delete, name="dataset_delete"),
    path("staging/<str:code>/manifest", api.manifest, name="dataset_manifest"),
    path("staging/<str:code>/pack", api.pack, name="dataset_pack"),
    path("staging/<str:code>/progress", api.progress, name="dataset_progress"),
    path("staging/<str:code>/unfinished", api.unfinished, name="dataset_unfinished"),
    path("staging/<str:code>/key", views.dataset_key, name="dataset_key"),
    path("staging/<str:code>/seal", api.seal, name="dataset_seal"),
    path("staging/<str:code>/files/<path:path>", downloads.dataset_file, name="dataset_file"),
    path("staging/<str:code>/zip", downloads.dataset_zip, name="dataset_zip"),
]
