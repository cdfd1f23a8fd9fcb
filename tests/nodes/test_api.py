"""The agent's HTTP interface: what it answers, whom it answers, and what it refuses."""

import hashlib
import io
import json
import logging

import pytest
from django.db.models import F
from django.test import Client
from django.urls import reverse

from jobs import logs
from jobs import services as jobs
from jobs.models import Job, JobInput
from nodes import fleet, polls, scheduler
from nodes.models import Lease, LeaseGpu, Node
from portal.base.clock import db_now
from staging import services as staging

pytestmark = pytest.mark.django_db

INSTANCE = "0123456789abcdef"
GIB = 2**30


class Agent:
    """Speaks the protocol through Django's test client."""

    def __init__(self, name: str = "n1", gpus: int = 1) -> None:
        self.node, token = fleet.create_node(name=name, actor="operator")
        self.gpus = gpus
        self.sequence = 0
        self.client = Client()
        answer = self.post("enrol", {"token": token, "protocol": 1}, auth="")
        assert answer.status_code == 201
        self.credential = answer.json()["credential"]

    def headers(self, auth: str | None, token: str) -> dict:
        value = f"Bearer {self.credential}" if auth is None else auth
        return {"Authorization": value, "X-Lease-Token": token}

    def post(self, path: str, body, *, auth: str | None = None, token: str = ""):
        raw = body if isinstance(body, bytes) else json.dumps(body)
        return self.client.post(
            f"/agent/v1/{path}",
            raw,
            content_type="application/json",
            headers=self.headers(auth, token),
        )

    def get(self, path: str, *, token: str = "", auth: str | None = None, **headers):
        return self.client.get(f"/agent/v1/{path}", headers=self.headers(auth, token) | headers)

    def poll_body(self, leases: list | None = None, **fields) -> dict:
        self.sequence += 1
        gpus = [
            {
                "uuid": f"GPU-{self.node.name}-{i}",
                "index": i,
                "model": "Simulated GPU",
                "memory_bytes": 24 * GIB,
                "usable": True,
                "simulated": True,
            }
            for i in range(self.gpus)
        ]
        facts = {
            "cpus": 8,
            "memory_bytes": 64 * GIB,
            "disk_bytes": 100 * GIB,
            "isolation": "bwrap",
            "gpus": gpus,
        }
        return {
            "protocol": 1,
            "instance": INSTANCE,
            "sequence": self.sequence,
            "boot": "boot",
            "facts": facts,
            "leases": leases or [],
        } | fields

    def poll(self, leases: list | None = None, **fields) -> list[dict]:
        answer = self.post("poll", self.poll_body(leases, **fields))
        assert answer.status_code == 200, answer.content
        return answer.json()["leases"]


@pytest.fixture
def agent(db) -> Agent:
    return Agent()


@pytest.fixture
def dataset(team):
    row = staging.create_dataset(team=team, name="Readings", actor="owner@climate.example")
    for path, content in {"a/one.txt": b"one", "a/two.txt": b"twotwo", "b/three.txt": b""}.items():
        staging.store_bytes(
            dataset=row,
            path=path,
            content=io.BytesIO(content),
            size=len(content),
            actor="owner@climate.example",
        )
    sealed = staging.seal_dataset(dataset=row, actor="owner@climate.example")
    return staging.verify_dataset(dataset=sealed)


@pytest.fixture
def job(team, dataset, agent) -> Job:
    agent.poll()
    row = Job.objects.create(
        team=team,
        name="Count",
        created_by="owner@climate.example",
        created_at=db_now(),
        script="print(1)",
        shard_count=2,
        output_limit_bytes=1000,
    )
    JobInput.objects.create(job=row, dataset=dataset, mount="in", split=True)
    row.output_paths.create(pattern="**")
    secret = row.variables.create(name="API_KEY", secret=True)
    secret.set_value("hunter2")
    secret.save()
    return jobs.submit(job=row, actor="owner@climate.example")


@pytest.fixture
def lease(agent, job) -> Lease:
    scheduler.run_pass()
    items = agent.poll()
    assert [i["wanted"] for i in items] == ["fetch", "fetch"]
    return Lease.objects.get(code=items[0]["lease"])


def item(lease: Lease, phase: str, **fields) -> dict:
    steps = ["ready", "allocated", "running", "returning", "releasing", "released"]
    reached = steps[: steps.index(phase) + 1] if phase in steps else []
    return {
        "lease": lease.code,
        "token": lease.token,
        "phase": phase,
        "ages": dict.fromkeys(reached, 0),
    } | fields


def test_a_token_enrols_once(agent):
    _, token = fleet.create_node(name="n2", actor="operator")
    assert agent.post("enrol", {"token": token, "protocol": 1}, auth="").status_code == 201
    again = agent.post("enrol", {"token": token, "protocol": 1}, auth="")
    assert again.status_code == 401
    assert again.json()["error"] == "enrolment_refused"


@pytest.mark.parametrize("auth", ["", "Bearer", "Bearer x", "Basic x", "Bearer \u00e9", "x" * 9000])
def test_without_its_credential_nobody_is_answered(agent, auth):
    answer = agent.post("poll", agent.poll_body(), auth=auth)
    assert (answer.status_code, answer.json()["error"]) == (401, "unknown_credential")


def test_a_revoked_credential_says_so(agent):
    fleet.revoke(node=agent.node, actor="operator", reason="stolen")
    answer = agent.post("poll", agent.poll_body())
    assert (answer.status_code, answer.json()["error"]) == (401, "revoked")


def test_the_spec_is_what_was_declared_and_carries_the_secret_here_only(agent, lease):
    spec = agent.get(f"leases/{lease.code}/spec", token=lease.token).json()
    assert spec["work"]["script"] == "print(1)"
    assert spec["variables"] == {"API_KEY": "hunter2"}
    assert spec["limits"]["seconds"] == 3600
    assert (spec["index"], spec["count"]) == (lease.shard.index, 2)
    assert "hunter2" not in json.dumps(agent.poll([item(lease, "fetching")]))


def test_each_shard_reads_its_part_and_nothing_else(agent, lease):
    leases = list(Lease.objects.order_by("shard__index"))
    parts = {}
    for row in leases:
        answer = agent.get(f"leases/{row.code}/files", token=row.token).json()
        assert answer["next"] is None
        parts[row.code] = {f["path"]: f for f in answer["files"]}
    paths = [set(part) for part in parts.values()]
    assert paths[0] | paths[1] == {
        "data/in/a/one.txt",
        "data/in/a/two.txt",
        "data/in/b/three.txt",
    }
    assert not paths[0] & paths[1]
    own = next(iter(parts[leases[0].code].values()))
    foreign = next(iter(parts[leases[1].code].values()))
    base = f"leases/{leases[0].code}/files"
    got = agent.get(f"{base}/{own['id']}", token=leases[0].token)
    content = b"".join(got.streaming_content)
    assert hashlib.sha256(content).hexdigest() == own["digest"]
    assert agent.get(f"{base}/{foreign['id']}", token=leases[0].token).status_code == 404
    assert agent.get(f"{base}/999999999", token=leases[0].token).status_code == 404


def test_a_file_is_read_from_where_it_broke_off(agent, lease):
    files = agent.get(f"leases/{lease.code}/files", token=lease.token).json()["files"]
    file = max(files, key=lambda f: f["size"])
    path = f"leases/{lease.code}/files/{file['id']}"
    part = agent.get(path, token=lease.token, Range="bytes=1-")
    assert part.status_code == 206
    assert len(b"".join(part.streaming_content)) == file["size"] - 1
    end = agent.get(path, token=lease.token, Range=f"bytes={file['size']}-")
    assert (end.status_code, end.json()["error"]) == (416, "range_not_satisfiable")


@pytest.mark.parametrize("token", ["", "9.9", "1.1 ", "x", "1.10"])
def test_a_stale_token_is_refused_for_reads_too(agent, lease, token):
    for path in ("spec", "files", "files/1"):
        answer = agent.get(f"leases/{lease.code}/{path}", token=token)
        assert (answer.status_code, answer.json()["error"]) == (409, "stale_lease")
    for path in ("log?offset=0", "output", "output/complete"):
        answer = agent.post(f"leases/{lease.code}/{path}", {}, token=token)
        assert (answer.status_code, answer.json()["error"]) == (409, "stale_lease")


def test_another_node_cannot_read_a_lease(agent, lease):
    other = Agent("n2")
    answer = other.get(f"leases/{lease.code}/spec", token=lease.token)
    assert (answer.status_code, answer.json()["error"]) == (404, "unknown_lease")


def test_a_lease_that_the_portal_does_not_know_is_kept(agent):
    unknown = {"lease": "zzzzzzzzzz", "token": "1.1", "phase": "running"}
    assert agent.poll([unknown])[0]["wanted"] == "keep"


def test_a_stale_token_in_a_poll_is_dropped(agent, lease):
    wrong = item(lease, "running") | {"token": "1.9"}
    answer = {i["lease"]: i for i in agent.poll([wrong])}
    assert answer[lease.code]["wanted"] == "drop"
    lease.refresh_from_db()
    assert lease.state == "placed"


def test_ready_is_answered_with_named_gpus_and_the_meter_starts_with_the_acknowledgement(
    agent, lease
):
    scheduler.run_pass()
    agent.poll([item(lease, "ready")])
    scheduler.run_pass()
    answer = {i["lease"]: i for i in agent.poll([item(lease, "ready")])}[lease.code]
    assert (answer["wanted"], answer["gpus"]) == ("run", ["GPU-n1-0"])
    lease.refresh_from_db()
    assert (lease.state, lease.allocated_at) == ("granted", None)
    agent.poll([item(lease, "running", ages={"ready": 9, "allocated": 7, "running": 5})])
    lease.refresh_from_db()
    assert lease.state == "running"
    assert lease.granted_at <= lease.allocated_at <= lease.running_at


def test_the_whole_life_over_http(agent, job, tmp_path):
    """Both pieces run one after the other on one GPU, return a file each, and are recorded."""
    for _ in range(12):
        scheduler.run_pass()
        for live in list(Lease.objects.live()):
            agent.poll([item(live, "ready")])
        for live in Lease.objects.filter(state="granted"):
            agent.poll([item(live, "running")])
            done = {"code": 0, "signal": None, "reason": "exited"}
            agent.poll([item(live, "returning", exit=done, output="pending")])
            _return_file(agent, live, b"result of %d" % live.shard.index)
            evidence = {
                "processes": "none",
                "gpus": {"GPU-n1-0": "simulated"},
                "scratch": "wiped",
                "output": "delivered",
            }
            answer = agent.poll(
                [item(live, "released", exit=done, output="delivered", evidence=evidence)]
            )
            assert {i["lease"]: i["wanted"] for i in answer}[live.code] == "forget"
    job.refresh_from_db()
    assert (job.state, job.outcome) == ("ended", "succeeded")
    output = staging.verify_dataset(dataset=job.output)
    assert output.state == "staged"
    assert [f.path for f in output.files.order_by("position")] == ["0/r.txt", "1/r.txt"]
    assert not LeaseGpu.objects.filter(until=None).exists()
    record = job.record.body
    assert record["output"]["verified"] is True
    assert record["held_ms"] == sum(x["held_ms"] for s in record["shards"] for x in s["leases"])
    assert "hunter2" not in json.dumps(record)
    node = Node.objects.get(pk=agent.node.pk)
    reserved = (node.reserved_cpus, node.reserved_memory_bytes, node.reserved_disk_bytes)
    assert reserved == (0, 0, 0)
    assert _staged_for_the_next_job(agent, job) == {"0/r.txt": False, "1/r.txt": True}


def _staged_for_the_next_job(agent: Agent, job: Job) -> dict[str, bool]:
    """The files of a job's output as the node of the next one is told of them: which can be run."""
    following = Job.objects.create(
        team=job.team, name="Next", created_by="o", created_at=db_now(), script="x"
    )
    JobInput.objects.create(job=following, dataset=job.output, mount="in")
    jobs.submit(job=following, actor="o")
    scheduler.run_pass()
    lease = Lease.objects.get(shard__job=following)
    answer = agent.get(f"leases/{lease.code}/files", token=lease.token).json()
    return {f["path"].removeprefix("data/in/"): f["executable"] for f in answer["files"]}


@pytest.mark.parametrize("value", ["yes", 1, None, []])
def test_executable_is_true_or_false(agent, lease, value):
    file = {"path": "r", "size": 1, "digest": "0" * 64, "executable": value}
    answer = agent.post(f"leases/{lease.code}/output", {"files": [file]}, token=lease.token)
    assert (answer.status_code, answer.json()["error"]) == (400, "bad_request")


def _return_file(agent: Agent, lease: Lease, content: bytes) -> None:
    digest = hashlib.sha256(content).hexdigest()
    base = f"leases/{lease.code}/output"
    runs = lease.shard.index == 1
    file = {"path": "r.txt", "size": len(content), "digest": digest} | (
        {"executable": True} if runs else {}
    )
    answer = agent.post(base, {"files": [file]}, token=lease.token).json()["files"][0]
    early = {"files": 1, "bytes": len(content), "manifest_digest": "0" * 64}
    refused = agent.post(f"{base}/complete", early, token=lease.token)
    assert (refused.status_code, refused.json()["error"]) == (409, "output_incomplete")
    assert refused.json()["send"] == ["r.txt"]
    sent = Client().patch(
        answer["upload"],
        content,
        content_type="application/offset+octet-stream",
        headers={"Tus-Resumable": "1.0.0", "Upload-Offset": "0"},
    )
    assert sent.status_code == 204, sent.content
    line = f"{digest} {len(content)} {'x' if runs else '-'} r.txt\0"
    manifest = hashlib.sha256(line.encode()).hexdigest()
    complete = {"files": 1, "bytes": len(content), "manifest_digest": manifest}
    for _ in range(2):  # the answer may be lost: a repeat says the same
        done = agent.post(f"{base}/complete", complete, token=lease.token)
        assert done.json() == {"verified": True}, done.content


def test_an_output_larger_than_declared_is_refused(agent, lease):
    file = {"path": "big", "size": 1001, "digest": "0" * 64}
    answer = agent.post(f"leases/{lease.code}/output", {"files": [file]}, token=lease.token)
    assert (answer.status_code, answer.json()["error"]) == (413, "too_large")


@pytest.mark.parametrize(
    "path", ["../x", "/etc/passwd", "a/../../b", "a//b", "x" * 300, "a\\..\\b", "x\u202egpj.sh"]
)
def test_an_output_path_that_leads_elsewhere_is_refused_by_name(agent, lease, path):
    file = {"path": path, "size": 1, "digest": "0" * 64}
    answer = agent.post(f"leases/{lease.code}/output", {"files": [file]}, token=lease.token)
    assert answer.status_code == 400, answer.content
    assert answer.json()["error"] == "output_refused"


def test_the_log_is_appended_once(agent, lease, caplog):
    path = f"leases/{lease.code}/log?offset="
    assert agent.post(path + "0", b"hello ", token=lease.token).json() == {"offset": 6}
    again = agent.post(path + "0", b"hello ", token=lease.token)
    assert (again.status_code, again.json()["error"], again.json()["offset"]) == (
        409,
        "offset",
        6,
    )
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert agent.post(path + "6", b"\xff\x00", token=lease.token).json() == {"offset": 8}
    for bad in ("", "x", "-1", "1e3", "9" * 30):
        assert agent.post(path + bad, b"x", token=lease.token).status_code == 400


DONE = {"code": 0, "signal": None, "reason": "exited"}
EVIDENCE = {"processes": "none", "gpus": {}, "scratch": "wiped", "output": "sealed"}


def _release(agent: Agent, lease: Lease, **fields) -> None:
    """The lease's work ends, its output is sealed, its compute is released."""
    scheduler.run_pass()
    for phase in ("ready", "running"):
        agent.poll([item(lease, phase)])
    _report_release(agent, lease, **fields)
    lease.refresh_from_db()
    assert lease.state == "released"


def _report_release(agent: Agent, lease: Lease, **fields) -> None:
    told = {"exit": DONE, "output": "sealed", "evidence": EVIDENCE} | fields
    agent.poll([item(lease, "released", **told)])


def test_the_rest_of_the_log_may_arrive_after_the_release_and_no_more(agent, lease):
    path = f"leases/{lease.code}/log?offset="
    assert agent.post(path + "0", b"begun ", token=lease.token).status_code == 200
    _release(agent, lease, log_bytes=10)
    _report_release(agent, lease, log_bytes=1000)  # cannot be enlarged
    closed = agent.post(path + "6", b"12345", token=lease.token)
    assert (closed.status_code, closed.json()["error"]) == (409, "log_closed")
    assert agent.post(path + "6", b"end\n", token=lease.token).json() == {"offset": 10}
    again = agent.post(path + "6", b"end\n", token=lease.token)
    assert (again.json()["error"], again.json()["offset"]) == ("offset", 10)
    assert agent.post(path + "10", b"x", token=lease.token).json()["error"] == "log_closed"
    assert agent.post(path + "10", b"", token=lease.token).status_code == 200
    assert logs.read_log(lease.code, 0, 100) == b"begun end\n"


@pytest.mark.parametrize("told", [{}, {"log_bytes": None}])
def test_a_release_that_tells_no_length_ends_the_log(agent, lease, told):
    _release(agent, lease, **told)
    answer = agent.post(f"leases/{lease.code}/log?offset=0", b"x", token=lease.token)
    assert (answer.status_code, answer.json()["error"]) == (409, "log_closed")


@pytest.mark.parametrize(("in_doubt", "error"), [(True, "lease_in_doubt"), (False, "stale_lease")])
def test_a_lost_lease_writes_its_log_only_when_it_is_kept(agent, lease, in_doubt, error):
    changes = {"state": "lost", "ended_at": db_now(), "in_doubt": in_doubt}
    Lease.objects.filter(pk=lease.pk).update(**changes)
    answer = agent.post(f"leases/{lease.code}/log?offset=0", b"x", token=lease.token)
    assert answer.json()["error"] == error
    assert logs.log_size(lease.code) == 0


HOSTILE = [
    b"",
    b"[]",
    b"null",
    b"{",
    b"\xff\xfe",
    b'{"protocol": NaN}',
    b"[" * 100_000,
    json.dumps({"protocol": 2}).encode(),
]


@pytest.mark.parametrize("body", HOSTILE)
@pytest.mark.parametrize("path", ["poll", "enrol"])
def test_a_body_that_is_not_what_it_should_be(agent, path, body):
    answer = agent.post(path, body)
    assert answer.status_code in (400, 413)
    assert answer.json()["error"] in ("bad_request", "too_large")
    assert answer.json()["message"]


FACTS = [
    ("cpus", -1),
    ("cpus", 1.5),
    ("cpus", "8"),
    ("cpus", True),
    ("memory_bytes", 2**63),
    ("disk_bytes", None),
    ("isolation", "none"),
    ("hostname", "a\0b"),
    ("hostname", "\ud800"),
    ("hostname", "x" * 300),
    ("gpus", {}),
    ("gpus", [{"uuid": ""}]),
    ("gpus", [{}] * 300),
]


@pytest.mark.parametrize(("name", "value"), FACTS)
def test_a_fact_that_cannot_be_is_refused_and_nothing_is_kept(agent, name, value):
    body = agent.poll_body()
    body["facts"][name] = value
    answer = agent.post("poll", body)
    assert answer.status_code == 400
    assert Node.objects.get(pk=agent.node.pk).last_seen_at is None


ITEMS = [
    {"phase": "flying"},
    {"phase": None},
    {"lease": "../x"},
    {"lease": "A" * 40},
    {"token": "1"},
    {"lease": "a" * 16 + "\n"},
    {"token": "1.1\n"},
    {"job": "a" * 16 + "\n"},
    {"ages": {"ready": -1}},
    {"ages": {"ready": "soon"}},
    {"ages": {"ready": 10**18}},
    {"exit": {"reason": "felt like it"}},
    {"exit": {"code": 10**9, "reason": "exited"}},
    {"fault": {"code": "gremlins"}},
    {"output": "maybe"},
    {"evidence": {"processes": "some"}},
    {"evidence": []},
]


@pytest.mark.parametrize("fields", ITEMS)
def test_a_lease_report_that_cannot_be_is_refused(agent, lease, fields):
    body = agent.poll_body([item(lease, "ready") | fields])
    answer = agent.post("poll", body)
    assert answer.status_code == 400, answer.content
    lease.refresh_from_db()
    assert lease.state == "placed"


GOOD_FILE = {"path": "r", "size": 1, "digest": "0" * 64}
OUTPUTS = [
    *({"files": [GOOD_FILE | wrong]} for wrong in (
        {"path": ""}, {"path": 1}, {"path": None}, {"path": "x" * 5000}, {"path": "a\0"},
        {"size": -1}, {"size": "1"}, {"size": 1.5}, {"size": 2**63}, {"size": None},
        {"digest": ""}, {"digest": "0" * 63}, {"digest": "G" * 64}, {"digest": "0" * 64 + "-0"},
        {"executable": 1}, {"executable": "yes"},
    )),
    {"files": []}, {"files": {}}, {"files": [GOOD_FILE] * 1001}, {"files": [{}]}, {},
]  # fmt: skip
GOOD_END = {"files": 1, "bytes": 1, "manifest_digest": "0" * 64}
ENDS = [
    GOOD_END | wrong
    for wrong in (
        {"files": -1},
        {"files": "1"},
        {"files": True},
        {"files": 2**63},
        {"bytes": -1},
        {"bytes": None},
        {"bytes": 2**63},
        {"manifest_digest": ""},
        {"manifest_digest": "x" * 64},
        {"manifest_digest": "0" * 10_000},
    )
]
ENROLS = [
    {"token": "", "protocol": 1},
    {"token": 1, "protocol": 1},
    {"token": "x" * 300, "protocol": 1},
    {"token": "a\0", "protocol": 1},
    {"token": "x", "protocol": 2},
    {"token": "x", "protocol": 1, "agent_version": "v" * 40},
    {"token": "x", "protocol": 1, "hostname": ["h"]},
]


@pytest.mark.parametrize(
    ("path", "body"),
    [("output", body) for body in [*OUTPUTS, *HOSTILE]]
    + [("output/complete", body) for body in [*ENDS, *HOSTILE]],
)
def test_a_return_that_cannot_be_is_refused_and_nothing_is_listed(agent, lease, path, body):
    answer = agent.post(f"leases/{lease.code}/{path}", body, token=lease.token)
    assert answer.status_code in (400, 413), answer.content
    assert answer.json()["message"]
    assert not lease.shard.job.output.files.exists()
    lease.refresh_from_db()
    assert lease.output_verified_at is None


@pytest.mark.parametrize("body", ENROLS)
def test_an_enrolment_that_cannot_be_is_refused(agent, body):
    answer = agent.post("enrol", body)
    assert (answer.status_code, answer.json()["error"]) == (400, "bad_request")


def test_a_copied_credential_on_another_machine_is_refused(agent):
    agent.poll()
    answer = agent.post("poll", agent.poll_body(instance="f" * 16, boot="elsewhere"))
    assert (answer.status_code, answer.json()["error"]) == (409, "second_agent")


def test_a_restarted_agent_takes_over_and_the_old_one_is_refused(agent):
    agent.poll()
    agent.poll(instance="e" * 16)
    answer = agent.post("poll", agent.poll_body())
    assert (answer.status_code, answer.json()["error"]) == (409, "second_agent")


def test_a_poll_that_a_later_one_overtook_proves_nothing(agent, lease):
    """One that was held up on its way lists no lease that was given out since."""
    held_up = agent.poll_body()
    agent.poll([item(lease, "fetching")])
    before = Lease.objects.values().get(pk=lease.pk)
    answer = agent.post("poll", held_up)
    assert (answer.status_code, answer.json()["error"]) == (409, "stale_poll")
    assert Lease.objects.values().get(pk=lease.pk) == before


def test_a_poll_that_is_overtaken_while_it_is_taken_proves_nothing(agent, lease, monkeypatch):
    """Its leases were taken; what it lacks is not concluded from it any more."""
    begin = polls._unreported

    def overtaken(node, reported):
        Node.objects.filter(pk=node.pk).update(sequence=F("sequence") + 1)
        return begin(node, reported)

    for phase in ("fetching", "ready", "running"):
        agent.poll([item(lease, phase)])
    monkeypatch.setattr(polls, "_unreported", overtaken)
    answer = agent.post("poll", agent.poll_body())
    assert (answer.status_code, answer.json()["error"]) == (409, "stale_poll")
    lease.refresh_from_db()
    assert lease.state == "running"
    assert LeaseGpu.objects.get(lease=lease).until is None


def test_a_gpu_in_use_by_others_gets_no_lease_and_no_quarantine(agent):
    """R12: somebody's notebook on a free GPU."""
    body = agent.poll_body()
    body["facts"]["gpus"][0]["processes"] = [{"pid": 77, "user": "ada", "since_ms": 120_000}]
    assert agent.post("poll", body).status_code == 200
    gpu = agent.node.gpus.get()
    assert (gpu.usable, gpu.quarantined) == (False, False)
    assert gpu.reason == "In use outside the portal by ada (process 77, for 2 min)."
    agent.poll()
    gpu.refresh_from_db()
    assert gpu.usable


def test_an_unknown_address_is_json(agent):
    answer = agent.get("nothing/here")
    assert (answer.status_code, answer.json()["error"]) == (404, "not_found")


MISMATCH = "Driver/library version mismatch: the driver was changed and not loaded again."


@pytest.mark.parametrize("reason", [MISMATCH, "The NVIDIA driver is not answering."])
def test_gpus_that_are_gone_carry_the_reason_that_the_node_gives(agent, operator_client, reason):
    """R8, R9: on the board and on the node's page of the admin, and until they are back."""
    agent.gpus = 2
    agent.poll()
    agent.node.gpus.filter(index=1).update(quarantined=True, reason="Left busy.")
    agent.gpus = 0
    body = agent.poll_body()
    body["facts"]["gpu_reason"] = reason
    assert agent.post("poll", body).status_code == 200
    rows = agent.node.gpus.order_by("index").values_list("present", "usable", "reason")
    assert list(rows) == [(False, False, reason), (False, False, "Left busy.")]
    page = reverse("admin:nodes_node_change", args=[agent.node.pk])
    for address in (reverse("nodes"), page):
        assert reason in operator_client.get(address).content.decode()
    agent.gpus = 2
    agent.poll()
    assert agent.node.gpus.get(index=0).reason == ""


def test_a_gpu_that_is_gone_while_others_are_there_is_no_longer_reported(agent):
    agent.gpus = 2
    agent.poll()
    agent.gpus = 1
    agent.poll()
    assert agent.node.gpus.get(index=1).reason == "No longer reported by the node."


def test_a_node_that_never_had_gpus_says_why(agent, operator_client):
    agent.gpus = 0
    body = agent.poll_body()
    body["facts"]["gpu_reason"] = MISMATCH
    assert agent.post("poll", body).status_code == 200
    page = reverse("admin:nodes_node_change", args=[agent.node.pk])
    for address in (reverse("nodes"), page):
        assert MISMATCH in operator_client.get(address).content.decode()
