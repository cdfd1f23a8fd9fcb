"""Addresses for agents (docs/agent-protocol.md)."""

from django.urls import path, re_path

from nodes import api

LEASE = "agent/v1/leases/<slug:code>"

urlpatterns = [
    path("agent/v1/enrol", api.enrol, name="agent_enrol"),
    path("agent/v1/poll", api.poll, name="agent_poll"),
    path(f"{LEASE}/spec", api.spec, name="agent_spec"),
    path(f"{LEASE}/files", api.files, name="agent_files"),
    path(f"{LEASE}/files/<int:number>", api.file_bytes, name="agent_file"),
    path(f"{LEASE}/log", api.log, name="agent_log"),
    path(f"{LEASE}/output", api.output, name="agent_output"),
    path(f"{LEASE}/output/complete", api.output_complete, name="agent_output_complete"),
    re_path(r"^agent/(?P<rest>.*)$", api.not_here),
]
