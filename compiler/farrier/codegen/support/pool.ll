; The thread pool that runs parallel loops.
;
; One region of work is split statically: each worker owns a contiguous share, cut into a few chunks.
; Whoever is done with its own share claims chunks of the others', so that a thread that the system
; took away is helped. A chunk is claimed by a compare-and-swap of its owner's claim word, which holds
; the region's number as well: a worker that wakes up late in another region claims nothing.
;
; Where a neighbour takes a core, a helper that was stopped within a chunk holds up the caller until
; it runs again. So the caller keeps a debt: by how much regions took longer than they would have
; alone. Past 200 us of it the caller works alone for a while: for as long as the debt, and twice as
; long as before where that was not long ago.
;
; Memory of a pool (64-byte lines, so that no two writers share one):
;     0  ptr parallel_for    8  i64 threads                              (the public part)
;    64  i32 region number, the futex that idle workers sleep on         68  i32 shutdown
;        72  ptr body       80  ptr context     88  i64 extent           96  i64 chunks
;   128  i32 workers asleep
;   192  i32 chunks not reported, the futex that the caller sleeps on    196  i32 caller asleep
;   256  i32 a region is running                                          (the caller's own line)
;        264  i64 ticks until which it works alone   272  i64 ticks of that rest   280  i64 debt, ticks
;   320 + 64 * worker:  i64 claim word = region << 32 | next chunk << 16 | end;  +8  i64 its thread

define i64 @farrier_pool_size(i64 %threads) nounwind {
  %slots = mul i64 %threads, 64
  %size = add i64 %slots, 320
  ret i64 %size
}

define void @farrier_pool_init(ptr %pool, i64 %threads) nounwind {
entry:
  %size = call i64 @farrier_pool_size(i64 %threads)
  br label %clear
clear:
  %at = phi i64 [ 0, %entry ], [ %at.next, %clear ]
  %word = getelementptr i8, ptr %pool, i64 %at
  store i64 0, ptr %word
  %at.next = add i64 %at, 8
  %more = icmp ult i64 %at.next, %size
  br i1 %more, label %clear, label %fill
fill:
  store ptr @parallel_for, ptr %pool
  %threads.at = getelementptr i8, ptr %pool, i64 8
  store i64 %threads, ptr %threads.at
  ret void
}

; The slot of a worker.
define internal ptr @slot(ptr %pool, i64 %worker) nounwind {
  %offset = mul i64 %worker, 64
  %from = add i64 %offset, 320
  %slot = getelementptr i8, ptr %pool, i64 %from
  ret ptr %slot
}

; Which worker the running thread is: 0 for a thread that is none of the helpers.
define internal i64 @current_worker(ptr %pool) nounwind {
entry:
  %self = call i64 @thread_pointer()
  %threads.at = getelementptr i8, ptr %pool, i64 8
  %threads = load i64, ptr %threads.at
  br label %look
look:
  %last = phi i64 [ %threads, %entry ], [ %worker, %other ]
  %worker = sub i64 %last, 1
  %none = icmp eq i64 %worker, 0
  br i1 %none, label %done, label %other
other:
  %slot = call ptr @slot(ptr %pool, i64 %worker)
  %thread.at = getelementptr i8, ptr %slot, i64 8
  %thread = load atomic i64, ptr %thread.at acquire, align 8
  %found = icmp eq i64 %thread, %self
  br i1 %found, label %done, label %look
done:
  ret i64 %worker
}

define internal void @parallel_for(ptr %pool, ptr %body, ptr %context, i64 %extent) nounwind {
entry:
  %empty = icmp sle i64 %extent, 0
  br i1 %empty, label %return, label %some
some:
  %threads.at = getelementptr i8, ptr %pool, i64 8
  %threads = load i64, ptr %threads.at
  %alone = icmp eq i64 %threads, 1
  br i1 %alone, label %serial, label %shared
shared:
  %busy.at = getelementptr i8, ptr %pool, i64 256
  %busy = load atomic i32, ptr %busy.at monotonic, align 4
  %within = icmp ne i32 %busy, 0
  br i1 %within, label %nested, label %idle
idle:
  %single = icmp eq i64 %extent, 1
  br i1 %single, label %serial, label %several
several:
  %start = call i64 @clock()
  %until.at = getelementptr i8, ptr %pool, i64 264
  %until = load atomic i64, ptr %until.at monotonic, align 8
  %rests = icmp slt i64 %start, %until
  br i1 %rests, label %serial, label %take
serial:
  call void %body(ptr %context, i64 0, i64 %extent, i64 0)
  ret void
take:
  %taken = cmpxchg ptr %busy.at, i32 0, i32 1 acquire monotonic
  %mine = extractvalue { i32, i1 } %taken, 1
  br i1 %mine, label %fork, label %nested
nested:
  %worker = call i64 @current_worker(ptr %pool)
  call void %body(ptr %context, i64 0, i64 %extent, i64 %worker)
  ret void
fork:
  %region = call i32 @fork(ptr %pool, ptr %body, ptr %context, i64 %extent)
  %ran = call i32 @take_part(ptr %pool, i32 %region, i64 0)
  %worked = call i64 @clock()
  call void @join(ptr %pool)
  call void @settle(ptr %pool, i64 %start, i64 %worked, i32 %ran)
  store atomic i32 0, ptr %busy.at release, align 4
  ret void
return:
  ret void
}

; Publishes a region and wakes whoever sleeps; returns its number.
define internal i32 @fork(ptr %pool, ptr %body, ptr %context, i64 %extent) nounwind {
entry:
  %threads.at = getelementptr i8, ptr %pool, i64 8
  %threads = load i64, ptr %threads.at
  %wanted = mul i64 %threads, 8
  %enough = icmp ult i64 %extent, %wanted
  %few = select i1 %enough, i64 %extent, i64 %wanted
  %fits = icmp ult i64 %few, 65535
  %chunks = select i1 %fits, i64 %few, i64 65535
  %body.at = getelementptr i8, ptr %pool, i64 72
  store ptr %body, ptr %body.at
  %context.at = getelementptr i8, ptr %pool, i64 80
  store ptr %context, ptr %context.at
  %extent.at = getelementptr i8, ptr %pool, i64 88
  store i64 %extent, ptr %extent.at
  %chunks.at = getelementptr i8, ptr %pool, i64 96
  store i64 %chunks, ptr %chunks.at
  %left.at = getelementptr i8, ptr %pool, i64 192
  %left = trunc i64 %chunks to i32
  store atomic i32 %left, ptr %left.at monotonic, align 4
  %waiting.at = getelementptr i8, ptr %pool, i64 196
  store atomic i32 0, ptr %waiting.at monotonic, align 4
  %region.at = getelementptr i8, ptr %pool, i64 64
  %region.old = load atomic i32, ptr %region.at monotonic, align 4
  %region = add i32 %region.old, 1
  %region.wide = zext i32 %region to i64
  %region.placed = shl i64 %region.wide, 32
  br label %deal
deal:
  %worker = phi i64 [ 0, %entry ], [ %worker.next, %deal ]
  %begin = phi i64 [ 0, %entry ], [ %end, %deal ]
  %worker.next = add i64 %worker, 1
  %share = mul i64 %chunks, %worker.next
  %end = udiv i64 %share, %threads
  %begin.placed = shl i64 %begin, 16
  %range = or i64 %begin.placed, %end
  %claim = or i64 %region.placed, %range
  %slot = call ptr @slot(ptr %pool, i64 %worker)
  store atomic i64 %claim, ptr %slot release, align 8
  %more = icmp ult i64 %worker.next, %threads
  br i1 %more, label %deal, label %publish
publish:
  %ignored = atomicrmw xchg ptr %region.at, i32 %region seq_cst
  call void @wake_sleepers(ptr %pool)
  ret i32 %region
}

define internal void @wake_sleepers(ptr %pool) nounwind {
  %asleep.at = getelementptr i8, ptr %pool, i64 128
  %asleep = load atomic i32, ptr %asleep.at seq_cst, align 4
  %some = icmp ne i32 %asleep, 0
  br i1 %some, label %wake, label %done
wake:
  %region.at = getelementptr i8, ptr %pool, i64 64
  call void @futex(ptr %region.at, i64 129, i64 2147483647)
  br label %done
done:
  ret void
}

; Runs chunks of `region`, those of the worker's own share first, until none is unclaimed; then reports
; how many it ran, once, since the count of chunks is the one word that all write. Returns that.
define internal i32 @take_part(ptr %pool, i32 %region, i64 %worker) nounwind {
entry:
  %threads.at = getelementptr i8, ptr %pool, i64 8
  %threads = load i64, ptr %threads.at
  br label %share
share:
  %visited = phi i64 [ 0, %entry ], [ %visited.next, %next ]
  %before = phi i32 [ 0, %entry ], [ %ran, %next ]
  %ahead = add i64 %worker, %visited
  %owner = urem i64 %ahead, %threads
  %slot = call ptr @slot(ptr %pool, i64 %owner)
  br label %look
look:
  %ran = phi i32 [ %before, %share ], [ %ran, %try ], [ %ran.next, %run ]
  %claim = load atomic i64, ptr %slot acquire, align 8
  %claim.shifted = lshr i64 %claim, 32
  %claim.region = trunc i64 %claim.shifted to i32
  %current = icmp eq i32 %claim.region, %region
  %next.shifted = lshr i64 %claim, 16
  %chunk = and i64 %next.shifted, 65535
  %end = and i64 %claim, 65535
  %left = icmp ult i64 %chunk, %end
  %open = and i1 %current, %left
  br i1 %open, label %try, label %next
try:
  %claim.next = add i64 %claim, 65536
  %swap = cmpxchg ptr %slot, i64 %claim, i64 %claim.next acq_rel monotonic
  %won = extractvalue { i64, i1 } %swap, 1
  br i1 %won, label %run, label %look
run:
  call void @run_chunk(ptr %pool, i64 %chunk, i64 %worker)
  %ran.next = add i32 %ran, 1
  br label %look
next:
  %visited.next = add i64 %visited, 1
  %more = icmp ult i64 %visited.next, %threads
  br i1 %more, label %share, label %report
report:
  %idle = icmp eq i32 %ran, 0
  br i1 %idle, label %done, label %finish
finish:
  call void @finish_chunks(ptr %pool, i32 %ran)
  br label %done
done:
  ret i32 %ran
}

; Runs a claimed chunk. The region cannot end before, so its fields are stable.
define internal void @run_chunk(ptr %pool, i64 %chunk, i64 %worker) nounwind {
entry:
  %body.at = getelementptr i8, ptr %pool, i64 72
  %body = load ptr, ptr %body.at
  %context.at = getelementptr i8, ptr %pool, i64 80
  %context = load ptr, ptr %context.at
  %extent.at = getelementptr i8, ptr %pool, i64 88
  %extent = load i64, ptr %extent.at
  %chunks.at = getelementptr i8, ptr %pool, i64 96
  %chunks = load i64, ptr %chunks.at
  %chunk.next = add i64 %chunk, 1
  %begin.scaled = mul i64 %extent, %chunk
  %begin = udiv i64 %begin.scaled, %chunks
  %end.scaled = mul i64 %extent, %chunk.next
  %end = udiv i64 %end.scaled, %chunks
  call void %body(ptr %context, i64 %begin, i64 %end, i64 %worker)
  ret void
}

; Reports `ran` chunks as finished; whoever reports the last wakes the caller.
define internal void @finish_chunks(ptr %pool, i32 %ran) nounwind {
entry:
  %left.at = getelementptr i8, ptr %pool, i64 192
  %left = atomicrmw sub ptr %left.at, i32 %ran seq_cst
  %last = icmp eq i32 %left, %ran
  br i1 %last, label %finish, label %done
finish:
  %waiting.at = getelementptr i8, ptr %pool, i64 196
  %waiting = load atomic i32, ptr %waiting.at seq_cst, align 4
  %asleep = icmp ne i32 %waiting, 0
  br i1 %asleep, label %wake, label %done
wake:
  call void @futex(ptr %left.at, i64 129, i64 1)
  br label %done
done:
  ret void
}

; Waits until every chunk is finished: spins, then sleeps.
define internal void @join(ptr %pool) nounwind {
entry:
  %left.at = getelementptr i8, ptr %pool, i64 192
  %finished = call i1 @spin_until(ptr %left.at, i32 0, i1 true)
  br i1 %finished, label %done, label %sleep
sleep:
  %waiting.at = getelementptr i8, ptr %pool, i64 196
  %ignored = atomicrmw xchg ptr %waiting.at, i32 1 seq_cst
  %left = load atomic i32, ptr %left.at seq_cst, align 4
  %zero = icmp eq i32 %left, 0
  br i1 %zero, label %done, label %wait
wait:
  %left.wide = zext i32 %left to i64
  call void @futex(ptr %left.at, i64 128, i64 %left.wide)
  br label %sleep
done:
  ret void
}

; Settles a region in which the caller ran `ran` chunks from `start` to `worked`, and then waited: what
; it took beyond the time of all chunks at that pace is debt, what it saved pays it back.
define internal void @settle(ptr %pool, i64 %start, i64 %worked, i32 %ran) nounwind {
entry:
  %some = icmp ne i32 %ran, 0
  br i1 %some, label %count, label %done
count:
  %end = call i64 @clock()
  %chunks.at = getelementptr i8, ptr %pool, i64 96
  %chunks = load i64, ptr %chunks.at
  %ran.wide = zext i32 %ran to i64
  %own = sub i64 %worked, %start
  %scaled = mul i64 %own, %chunks
  %alone = udiv i64 %scaled, %ran.wide
  %took = sub i64 %end, %start
  %loss = sub i64 %took, %alone
  %debt.at = getelementptr i8, ptr %pool, i64 280
  %debt.old = load i64, ptr %debt.at
  %debt.sum = add i64 %debt.old, %loss
  %owes = icmp sgt i64 %debt.sum, 0
  %debt = select i1 %owes, i64 %debt.sum, i64 0
  store i64 %debt, ptr %debt.at
  %budget = call i64 @spin_ticks()
  %bearable = mul i64 %budget, 4
  %much = icmp sgt i64 %debt, %bearable
  br i1 %much, label %retire, label %done
retire:
  ; Not long ago: within four times as long as the last rest took.
  %until.at = getelementptr i8, ptr %pool, i64 264
  %until.old = load i64, ptr %until.at
  %rest.at = getelementptr i8, ptr %pool, i64 272
  %rest.old = load i64, ptr %rest.at
  %since = sub i64 %end, %until.old
  %long = mul i64 %rest.old, 4
  %recent = icmp slt i64 %since, %long
  %double = mul i64 %rest.old, 2
  %again = select i1 %recent, i64 %double, i64 0
  %longer = icmp sgt i64 %again, %debt
  %wanted = select i1 %longer, i64 %again, i64 %debt
  %most = mul i64 %budget, 1280
  %within = icmp slt i64 %wanted, %most
  %rest = select i1 %within, i64 %wanted, i64 %most
  %until = add i64 %end, %rest
  store atomic i64 %until, ptr %until.at monotonic, align 8
  store i64 %rest, ptr %rest.at
  store i64 0, ptr %debt.at
  br label %done
done:
  ret void
}

; Spins until (the word == value) == wanted; false when the time to spin is over first.
define internal i1 @spin_until(ptr %word, i32 %value, i1 %wanted) nounwind {
entry:
  %ready = call i1 @is_reached(ptr %word, i32 %value, i1 %wanted)
  br i1 %ready, label %reached, label %begin
begin:
  %start = call i64 @farrier_ticks()
  %budget = call i64 @spin_ticks()
  br label %round
round:
  br label %spin
spin:
  %turn = phi i32 [ 0, %round ], [ %turn.next, %again ]
  call void @relax()
  %now.reached = call i1 @is_reached(ptr %word, i32 %value, i1 %wanted)
  br i1 %now.reached, label %reached, label %again
again:
  %turn.next = add i32 %turn, 1
  %more = icmp ult i32 %turn.next, 32
  br i1 %more, label %spin, label %check
check:
  %now = call i64 @farrier_ticks()
  %spent = sub i64 %now, %start
  %late = icmp ugt i64 %spent, %budget
  br i1 %late, label %expired, label %round
reached:
  ret i1 true
expired:
  ret i1 false
}

define internal i1 @is_reached(ptr %word, i32 %value, i1 %wanted) nounwind {
  %now = load atomic i32, ptr %word acquire, align 4
  %equal = icmp eq i32 %now, %value
  %reached = icmp eq i1 %equal, %wanted
  ret i1 %reached
}

define void @farrier_pool_work(ptr %pool, i64 %worker) nounwind {
entry:
  %slot = call ptr @slot(ptr %pool, i64 %worker)
  %thread.at = getelementptr i8, ptr %slot, i64 8
  %self = call i64 @thread_pointer()
  store atomic i64 %self, ptr %thread.at release, align 8
  %region.at = getelementptr i8, ptr %pool, i64 64
  %shutdown.at = getelementptr i8, ptr %pool, i64 68
  br label %idle
idle:
  %seen = phi i32 [ 0, %entry ], [ %region, %work ]
  %called = call i1 @spin_until(ptr %region.at, i32 %seen, i1 false)
  br i1 %called, label %awake, label %drowse
drowse:
  %asleep.at = getelementptr i8, ptr %pool, i64 128
  %before = atomicrmw add ptr %asleep.at, i32 1 seq_cst
  br label %recheck
recheck:
  %again = load atomic i32, ptr %region.at seq_cst, align 4
  %quiet = icmp eq i32 %again, %seen
  br i1 %quiet, label %sleep, label %rise
sleep:
  %seen.wide = zext i32 %seen to i64
  call void @futex(ptr %region.at, i64 128, i64 %seen.wide)
  br label %recheck
rise:
  %after = atomicrmw sub ptr %asleep.at, i32 1 seq_cst
  br label %awake
awake:
  %region = load atomic i32, ptr %region.at acquire, align 4
  %shutdown = load atomic i32, ptr %shutdown.at acquire, align 4
  %over = icmp ne i32 %shutdown, 0
  br i1 %over, label %leave, label %work
work:
  %ran = call i32 @take_part(ptr %pool, i32 %region, i64 %worker)
  br label %idle
leave:
  ret void
}

define void @farrier_pool_shutdown(ptr %pool) nounwind {
  %shutdown.at = getelementptr i8, ptr %pool, i64 68
  store atomic i32 1, ptr %shutdown.at release, align 4
  %region.at = getelementptr i8, ptr %pool, i64 64
  %before = atomicrmw add ptr %region.at, i32 1 seq_cst
  call void @wake_sleepers(ptr %pool)
  ret void
}
