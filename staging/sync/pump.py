"""A pump: one worker's turn at all sources, at most 20 s.

This thread alone talks to the database: it claims parts, hands them to threads that copy, and
writes down what comes back. Each source gets an even share of the threads and never all of them, so
one that is slow or dead keeps no other waiting. Threads are left behind, not waited for, when they
are stuck at the end: their claims end by themselves.
"""

import queue
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import structlog
from django.db import OperationalError, connection, transaction

from portal.base.clock import db_now
from portal.base.turns import is_ending, is_over
from staging.models import Source
from staging.sync import claims, listing, record
from staging.sync.copying import Order, Outcome, copy
from staging.sync.counting import look_at_source
from staging.sync.errors import SourceAway, Trouble
from staging.sync.opening import reader_of
from staging.sync.readers import Page, Reader
from staging.sync.states import PartKind, SourceState

THREADS = 8
PER_SOURCE = 6  # threads; the others are kept for whoever comes next
AHEAD = 2  # parts that a thread is given, so that it need not wait for the database in between
LOOK_S = 0.5  # between two looks for other sources
NOTE_S = 1.0  # between two notes of how far it is
LAST_CLAIM_S = 1.0  # before the end nothing new is begun
GRACE_S = 12.0  # for threads to notice the end
ENDING_S = 3.0  # the same, where the whole worker is to end
CLOSE_AFTER_S = 2.0  # without an outcome, the database connection is given back
TRIES = 5
log = structlog.get_logger(__name__)


@dataclass
class Step:
    """One page of a listing, asked for."""

    source: Source
    pages: Iterator[Page]


@dataclass
class Turned:
    """What came of a Step: a page, the end (None), or trouble."""

    step: Step
    page: Page | None = None
    trouble: Trouble | None = None


type Task = Callable[[], Iterator[Outcome | Turned]]


class Crew:
    """Threads that do tasks and answer through a queue. They hold no row and no lock."""

    def __init__(self) -> None:
        self.tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self.answers: queue.SimpleQueue[Outcome | Turned] = queue.SimpleQueue()
        self.count = 0

    def give(self, task: Task, flying: int) -> None:
        if self.count <= flying and self.count < THREADS:
            self.count += 1
            threading.Thread(target=self._work, name="sync", daemon=True).start()
        self.tasks.put(task)

    def _work(self) -> None:
        while (task := self.tasks.get()) is not None:
            for answer in task():
                self.answers.put(answer)

    def dismiss(self) -> None:
        for _ in range(self.count):
            self.tasks.put(None)


class Pump:
    def __init__(self, until: float) -> None:
        """`until`: a time.monotonic() value."""
        self.until = until
        self.crew = Crew()
        self.flying: Counter[int] = Counter()
        self.checks = 0
        self.readers: dict[int, Reader] = {}
        self.listings: dict[int, Step] = {}
        self.sources: list[Source] = []
        self.looked_at = float("-inf")
        self.nothing: set[int] = set()
        self.did = 0
        self.seat: int | None = None
        self.air: dict[int, Order] = {}  # by part
        self.noted_at = float("-inf")

    def run(self) -> int:
        """Work until the time is over or nothing is left to do: outcomes that were recorded."""
        try:
            while not is_over(self.until - LAST_CLAIM_S):
                self._fill()
                if not self.flying.total():
                    break
                self._collect(LOOK_S)
                self._note()
            self._land()
        finally:
            self.crew.dismiss()
            for step in self.listings.values():
                listing.release_listing(step.source)
        return self.did

    def _land(self) -> None:
        """Wait for what is in the air; a check of a whole file may take longer."""
        end = self.until + GRACE_S
        while self.flying.total() and (self.checks or time.monotonic() < end):
            self._collect(LOOK_S)
            self._note()
            if self.seat is not None:
                claims.keep_seat(self.seat, db_now())
            if is_ending():
                end = min(end, time.monotonic() + ENDING_S)
                self.checks = 0  # they notice it, too
        if is_ending():
            return  # what is still in the air is the fault of no source
        for source in self.sources:
            if self.flying[source.pk]:
                log.warning("sync_threads_left", source=source.pk, threads=self.flying[source.pk])
                source.refresh_from_db()
                record.note_away(source, SourceAway("The source does not answer at all."), db_now())

    # -- giving work out

    def _fill(self) -> None:
        now_s = time.monotonic()
        if now_s - self.looked_at >= LOOK_S:
            self.looked_at = now_s
            self.sources = list(
                claims.at_work(db_now()).select_related("connection", "folder", "dataset")
            )
            random.shuffle(self.sources)
            self.nothing.clear()
        while (free := THREADS - self.flying.total()) > 0:
            source = self._next_source()
            if source is None:
                return
            started = False
            with self._alone(source.pk):
                started = self._start(source, free)
            if not started:
                self.nothing.add(source.pk)

    def _next_source(self) -> Source | None:
        """The one with the fewest threads, among those that may have another."""
        open_ones = [
            source
            for source in self.sources
            if source.pk not in self.nothing and self.flying[source.pk] < PER_SOURCE
        ]
        return min(open_ones, key=lambda source: self.flying[source.pk], default=None)

    def _start(self, source: Source, free: int) -> bool:
        """Give some of a source's work out; False where it has none just now."""
        try:
            self._reader(source)
        except SourceAway as trouble:
            record.note_away(source, trouble, db_now())
            return False
        if source.state == SourceState.LISTING:
            return self._start_listing(source)
        others = len([s for s in self.sources if s.pk not in self.nothing])
        most = min(free, PER_SOURCE - self.flying[source.pk], max(1, PER_SOURCE // others))
        orders = claims.claim_parts(source.pk, most * AHEAD, db_now())
        if not orders:
            if not self.flying[source.pk]:
                record.settle(source)
            return False
        reader = self._reader(source)
        for some in (orders[n::most] for n in range(min(most, len(orders)))):
            self.flying[source.pk] += 1
            self.checks += sum(order.kind == PartKind.CHECK for order in some)
            self.air |= {order.part: order for order in some}
            self.crew.give(self._copy(reader, some), self.flying.total() - 1)
        return True

    def _copy(self, reader: Reader, orders: list[Order]) -> Task:
        def outcomes() -> Iterator[Outcome]:
            for number, order in enumerate(orders, 1):
                outcome = copy(reader, order, self.until)
                outcome.last = number == len(orders)
                yield outcome

        return outcomes

    def _reader(self, source: Source) -> Reader:
        if source.pk not in self.readers:
            self.readers[source.pk] = reader_of(source)
        return self.readers[source.pk]

    def _start_listing(self, source: Source) -> bool:
        if source.pk in self.listings or not listing.claim_listing(source, db_now()):
            return False
        if source.cursor.get("end"):
            listing.end_listing(source)
            self.looked_at = float("-inf")
            return False
        pages = self._reader(source).pages(source.cursor)
        self._turn(Step(source, pages))
        return True

    def _turn(self, step: Step) -> None:
        self.listings[step.source.pk] = step
        self.flying[step.source.pk] += 1
        self.crew.give(lambda: iter([_turned(step)]), self.flying.total() - 1)

    # -- taking answers

    def _collect(self, wait_s: float) -> None:
        """Record all answers that are there, after waiting for the first."""
        try:
            answers = [self.crew.answers.get(timeout=wait_s)]
        except queue.Empty:
            if time.monotonic() - self.looked_at > CLOSE_AFTER_S and not connection.in_atomic_block:
                connection.close()
            return
        while True:
            try:
                answers.append(self.crew.answers.get_nowait())
            except queue.Empty:
                break
        outcomes: dict[int, list[Outcome]] = {}
        for answer in answers:
            if isinstance(answer, Turned):
                with self._alone(answer.step.source.pk):
                    self._take_page(answer)
            else:
                outcomes.setdefault(answer.order.source, []).append(answer)
        for source_id, some in outcomes.items():
            with self._alone(source_id):
                self._record(source_id, some)

    @contextmanager
    def _alone(self, source_id: int) -> Iterator[None]:
        """What nobody thought of is the trouble of one source and stops no other."""
        try:
            yield
        except Exception:
            if connection.in_atomic_block:
                raise  # it broke a transaction that is not ours
            log.exception("sync_failed", source=source_id)
            source = Source.objects.filter(pk=source_id).first()
            if source is not None:
                record.note_away(source, SourceAway("The portal made an error here."), db_now())
            self.looked_at = float("-inf")

    def _record(self, source_id: int, outcomes: list[Outcome]) -> None:
        self.flying[source_id] -= sum(outcome.last for outcome in outcomes)
        self.checks -= sum(outcome.order.kind == PartKind.CHECK for outcome in outcomes)
        self.nothing.discard(source_id)
        for outcome in outcomes:
            self.air.pop(outcome.order.part, None)
        for attempt in range(TRIES):
            try:
                with transaction.atomic():  # nobody sees it neither in the air nor written down
                    record.record(source_id, outcomes)
                    self._note_air()
                break
            except OperationalError:  # a deadlock with an upload of the same bytes, say
                if attempt == TRIES - 1:
                    raise
                log.warning("sync_record_again", source=source_id, exc_info=True)
        self.did += len(outcomes)
        if any(isinstance(outcome.trouble, SourceAway) for outcome in outcomes):
            self.looked_at = float("-inf")  # it is left alone for a while

    # -- how far it is

    def _note(self) -> None:
        """Once a second: what is in the air, and the estimates of the sources at work."""
        now_s = time.monotonic()
        if now_s - self.noted_at < NOTE_S:
            return
        self.noted_at = now_s
        self._note_air()
        at_work = [source for source in self.sources if self.flying[source.pk]]
        for source in at_work:
            with self._alone(source.pk):
                look_at_source(source.pk, db_now())

    def _note_air(self) -> None:
        if self.seat is None:
            return
        air: dict[int, list[int]] = {}
        for order in self.air.values():
            both = air.setdefault(order.source, [0, 0])
            both[0], both[1] = both[0] + order.tally.files, both[1] + order.tally.bytes
        claims.note_air(self.seat, air)

    def _take_page(self, turned: Turned) -> None:
        step = turned.step
        source = step.source
        self.flying[source.pk] -= 1
        del self.listings[source.pk]
        self.nothing.discard(source.pk)
        self.did += 1
        if turned.trouble is not None:
            self._list_later(source, turned.trouble)
        elif turned.page is None:
            listing.end_listing(source)
            self.looked_at = float("-inf")
        else:
            more = turned.page.cursor is not None
            if more and not is_over(self.until - LAST_CLAIM_S):
                self._turn(step)  # the next page comes while this one is written down
            if not listing.store_page(source, turned.page):
                return
            if not more:
                listing.end_listing(source)
                self.looked_at = float("-inf")
            elif source.pk not in self.listings:
                listing.release_listing(source)

    def _list_later(self, source: Source, trouble: Trouble) -> None:
        source.refresh_from_db()
        record.note_away(source, trouble, db_now())
        listing.release_listing(source)
        self.looked_at = float("-inf")


def _turned(step: Step) -> Turned:
    try:
        return Turned(step, next(step.pages, None))
    except Trouble as trouble:
        return Turned(step, trouble=trouble)
    except Exception:  # a server can say what nobody thought of; the source is tried again
        log.exception("sync_list_failed", source=step.source.pk)
        return Turned(step, trouble=SourceAway("The source's listing cannot be understood."))


def run(until: float) -> int | None:
    """A turn in a seat of its own: outcomes recorded, or None where enough workers copy already."""
    now = db_now()
    if not claims.at_work(now).exists():
        return 0
    seat = claims.take_seat(now)
    if seat is None:
        return None
    pump = Pump(until)
    pump.seat = seat
    try:
        return pump.run()
    finally:
        claims.leave_seat(seat, db_now())
