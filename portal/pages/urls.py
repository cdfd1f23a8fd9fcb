from django.urls import path

from portal.pages import health, views

urlpatterns = [
    path("", views.home, name="home"),
    path("jobs/<slug:code>/", views.job, name="job"),
    path("jobs/<slug:code>/live", views.job_live, name="job_live"),
    path("records/", views.records_page, name="records"),
    path("records.csv", views.records_csv, name="records_csv"),
    path("records/<slug:code>/", views.record, name="record"),
    path("records/<slug:code>.json", views.record_json, name="record_json"),
    path("nodes/", views.nodes, name="nodes"),
    path("favicon.ico", views.favicon),
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
]
