"""Addresses of staging."""

from django.urls import path

from staging import tus

urlpatterns = [
    path("tus/", tus.tus_create, name="tus_create"),
    path("tus/<str:code>/<str:token>", tus.tus_upload, name="tus_upload"),
    path("tus/<path:rest>", tus.tus_nothing),
]
