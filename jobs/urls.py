from django.urls import path

from jobs import views

urlpatterns = [
    path("jobs/", views.jobs, name="jobs"),
    path("jobs/new", views.job_new, name="job_new"),
    path("jobs/preview", views.job_preview, name="job_preview"),
    path("jobs/<str:code>/edit", views.job_edit, name="job_edit"),
    path("jobs/<str:code>/copy", views.job_copy, name="job_copy"),
    path("jobs/<str:code>/cancel", views.job_cancel, name="job_cancel"),
    path("jobs/<str:code>/clear", views.job_clear, name="job_clear"),
    path("jobs/<str:code>/receipt.json", views.job_receipt, name="job_receipt"),
    path("jobs/<str:code>/delete-draft", views.job_delete, name="job_delete"),
    path("jobs/<str:code>/log/<str:shard>", views.job_log, name="job_log"),
    path("jobs/<str:code>/log/<str:shard>/raw", views.job_log_raw, name="job_log_raw"),
]
