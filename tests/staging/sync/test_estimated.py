"""A real sync over a slow relay: what is said meanwhile, what is kept, and what the next knows."""

import random
from collections.abc import Iterator

import pytest

from portal.base.clock import db_now
from staging.estimates import notes
from staging.estimates.models import Link
from staging.models import Estimate, PumpSeat, Source, Transfer
from staging.states import DatasetState
from tests.staging.sync.conftest import begin, connect, finish
from tests.staging.sync.slow import Relay

pytestmark = [pytest.mark.django_db, pytest.mark.xdist_group("weed")]
RATE = 6 * 2**20


@pytest.fixture
def relay(weed) -> Iterator[Relay]:
    relay = Relay(weed.port)
    relay.rate = RATE
    yield relay
    relay.close()


@pytest.fixture
def source(team, weed, bucket, relay) -> Source:
    """Two prefixes of 60 MiB in a few large files and some small ones; a sync of the first.

    The relay lets no sync of one pass in less than ten seconds: its link has a history then.
    """
    chance = random.Random(4)  # noqa: S311
    for prefix in "ab":
        weed.put(bucket, {f"{prefix}/large {n}": chance.randbytes(12 * 2**20) for n in range(5)})
        weed.put(bucket, {f"{prefix}/small {n}": chance.randbytes(20_000) for n in range(10)})
    connection = connect(team, None, bucket, endpoint=relay.endpoint)
    return begin(connection, "a")


def test_a_sync_is_estimated_while_it_copies_and_teaches_its_link(source):
    finish(source)
    assert source.dataset.state == DatasetState.STAGED
    notes.look_at_all(db_now())
    row = Transfer.objects.select_related("link").get()
    assert (row.complete, row.files, row.bytes_done) == (True, 15, 60 * 2**20 + 200_000)
    assert (row.link.kind, row.link.origin) == ("s3", source.connection.endpoint)
    told = list(Estimate.objects.filter(transfer=row))
    assert told
    lefts = [row.bytes_left for row in told]
    assert lefts == sorted(lefts, reverse=True)
    assert all(0 < one.p50_s <= one.p90_s for one in told)
    # The relay bounds the rate from above; a machine that is slow for a while, not from below.
    assert max(one.rate for one in told) < 3 * RATE
    assert not any(seat.air for seat in PumpSeat.objects.all())

    first_of_next = begin(source.connection, "b", name="Next")
    finish(first_of_next)
    after = Transfer.objects.order_by("pk").last()
    assert after is not None
    assert Link.objects.count() == 1
    first = after.estimates.first()
    assert first is not None
    assert first.at == after.began_at  # from its first look
