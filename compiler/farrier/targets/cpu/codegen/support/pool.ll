; The thread pool that runs parallel loops.
;
; A region of work (a parallel loop) is divided statically: each worker owns a contiguous share of
; the iterations, cut into a few chunks. A worker that has finished its own share claims chunks of
; other workers' shares, which helps if the system has preempted a thread. A chunk is claimed by a
; compare-and-swap on its owner's claim word, which also contains the number of the region: a word
; with the number of an earlier region means that its owner has not started the share yet, and a
; worker that wakes up late, in another region, claims nothing.
;
; The cost of a region is the transfer of cache lines between cores, above all of lines that one
; core fetches from many others in succession. Therefore the caller writes a single line, which all
; helpers watch: the description of the work, under a region number that is odd while the
; description is being changed. Each helper claims chunks in a line of its own, and reports in
; another one how many chunks it ran, once per share. Only a worker that has waited for a while
; reads the claim words of others.
;
; If another process takes a core, a helper that is preempted within a chunk delays the caller until
; it runs again. The caller therefore keeps a debt: the time by which regions took longer than the
; caller alone would have taken. Time saved by helpers pays the debt back, also in advance, up to
; the longest rest: an occasional preemption, as on virtual machines, costs less than working alone.
; Above 200 us of debt, the caller works alone for as long as the debt, and for twice as long as the
; last time if that was recent.
;
; If the system moves the caller away from another process, it may move it to the CPU that a helper
; is bound to. There the helper sleeps, since it runs only while the caller does not. Therefore a
; thread that wakes helpers checks on which CPU it runs, and binds a helper of the same CPU to the
; CPU where the caller was before. The helper cannot do this itself while a caller with real-time
; priority keeps it from running.
;
; Memory of a pool (64-byte lines, so that no two writers share one):
;     0  ptr parallel_for    8  i64 threads    16  i32 refused           (the public part)
;        20  i32 its process
;    64  i32 helpers asleep  68  i32 bell, the futex that they sleep on
;        72  i32 caller asleep, the futex that it sleeps on             (written for a sleep alone)
;   128  i32 a region is running                                        (the caller's own line)
;        136  i64 ticks until which it works alone   144  i64 ticks of that rest
;        152  i64 debt in ticks, negative where others saved more
;   192  i64 region number, odd while what follows is written           (the caller's, which all read)
;        200  ptr body, null to leave   208  ptr context   216  i64 extent   224  i64 chunks
;   256 + 128 * worker:
;        i64 claim word = region << 16 | next chunk                     (0 is the caller)
;        8  i64 its thread
;        16  i32 the CPU it is bound to, -1: to none    20  i32 the system's number of its thread
;        64  i64 report = region << 16 | chunks that the worker ran
; Region numbers have 48 bits, so that no number occurs twice: a share may remain untouched for a
; long time.

%work = type { ptr, ptr, i64, i64 } ; a region: body, context, extent, chunks

define i64 @farrier_pool_size(i64 %threads) nounwind {
  %slots = mul i64 %threads, 128
  %size = add i64 %slots, 256
  ret i64 %size
}

define void @farrier_pool_init(ptr %pool, i64 %threads, ptr %cpus) nounwind {
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
  %refused = call i32 @prepare()
  %refused.at = getelementptr i8, ptr %pool, i64 16
  store i32 %refused, ptr %refused.at
  %process = call i32 @current_process()
  %process.at = getelementptr i8, ptr %pool, i64 20
  store i32 %process, ptr %process.at
  %threads.at = getelementptr i8, ptr %pool, i64 8
  store i64 %threads, ptr %threads.at
  %bound = icmp ne ptr %cpus, null
  br label %place
place:
  %worker = phi i64 [ 0, %fill ], [ %worker.next, %placed ]
  br i1 %bound, label %read, label %placed
read:
  %cpu.from = getelementptr i32, ptr %cpus, i64 %worker
  %cpu.given = load i32, ptr %cpu.from
  br label %placed
placed:
  %cpu = phi i32 [ -1, %place ], [ %cpu.given, %read ]
  %slot = call ptr @slot(ptr %pool, i64 %worker)
  %cpu.at = getelementptr i8, ptr %slot, i64 16
  store i32 %cpu, ptr %cpu.at
  %worker.next = add i64 %worker, 1
  %others = icmp ult i64 %worker.next, %threads
  br i1 %others, label %place, label %done
done:
  ret void
}

; Returns the address of a worker's slot.
define internal ptr @slot(ptr %pool, i64 %worker) nounwind {
  %offset = mul i64 %worker, 128
  %from = add i64 %offset, 256
  %slot = getelementptr i8, ptr %pool, i64 %from
  ret ptr %slot
}

; Returns the number of the region that was started last.
define internal i64 @newest_region(ptr %pool) nounwind {
  %region.at = getelementptr i8, ptr %pool, i64 192
  %region = load atomic i64, ptr %region.at acquire, align 8
  ret i64 %region
}

; Returns the number of the worker that the running thread is; 0 for a thread that is not a helper.
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
  %work = alloca %work
  %empty = icmp sle i64 %extent, 0
  br i1 %empty, label %return, label %some
some:
  %threads.at = getelementptr i8, ptr %pool, i64 8
  %threads = load i64, ptr %threads.at
  %alone = icmp eq i64 %threads, 1
  br i1 %alone, label %serial, label %shared
shared:
  %busy.at = getelementptr i8, ptr %pool, i64 128
  %busy = load atomic i32, ptr %busy.at monotonic, align 4
  %within = icmp ne i32 %busy, 0
  br i1 %within, label %nested, label %idle
idle:
  %single = icmp eq i64 %extent, 1
  br i1 %single, label %serial, label %several
several:
  %start = call i64 @clock()
  %until.at = getelementptr i8, ptr %pool, i64 136
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
  %wanted = mul i64 %threads, 8
  %enough = icmp ult i64 %extent, %wanted
  %chunks = select i1 %enough, i64 %extent, i64 %wanted
  store ptr %body, ptr %work
  %context.at = getelementptr %work, ptr %work, i32 0, i32 1
  store ptr %context, ptr %context.at
  %extent.at = getelementptr %work, ptr %work, i32 0, i32 2
  store i64 %extent, ptr %extent.at
  %chunks.at = getelementptr %work, ptr %work, i32 0, i32 3
  store i64 %chunks, ptr %chunks.at
  %region = call i64 @publish(ptr %pool, ptr %work)
  ; Without a fence: what the caller wrote travels meanwhile, and only a helper that falls asleep at
  ; this moment can be missed, which is why the caller looks twice.
  call void @wake_sleepers(ptr %pool)
  call void @run_chunk(ptr %work, i64 0, i64 0)
  call void @wake_sleepers(ptr %pool)
  %ran = call i64 @run_share(ptr %pool, i64 %region, ptr %work, i64 0, i64 0, i64 1)
  %worked = call i64 @clock()
  %missing = sub i64 %chunks, %ran
  %soon = call i1 @is_finished_soon(ptr %pool, i64 %region, i64 %missing, i64 %worked)
  br i1 %soon, label %finish, label %help
help:
  %helped = call i64 @help(ptr %pool, i64 %region, ptr %work, i64 0, i64 %ran)
  %left = sub i64 %chunks, %helped
  call void @join(ptr %pool, i64 %region, i64 %left)
  br label %finish
finish:
  call void @settle(ptr %pool, i64 %start, i64 %worked, i64 %chunks, i64 %ran)
  store atomic i32 0, ptr %busy.at release, align 4
  ret void
return:
  ret void
}

; Starts a region, whose first chunk is reserved for the caller; returns its number.
define internal i64 @publish(ptr %pool, ptr %work) nounwind {
  %region.at = getelementptr i8, ptr %pool, i64 192
  %region.old = load i64, ptr %region.at
  %changing = add i64 %region.old, 1
  %region = add i64 %region.old, 2
  %region.placed = shl i64 %region, 16
  %claim = or i64 %region.placed, 1
  %own = call ptr @slot(ptr %pool, i64 0)
  store atomic i64 %claim, ptr %own monotonic, align 8
  store atomic i64 %changing, ptr %region.at monotonic, align 8
  fence release
  %shared = getelementptr i8, ptr %pool, i64 200
  call void @copy_work(ptr %work, ptr %shared)
  store atomic i64 %region, ptr %region.at release, align 8
  ret i64 %region
}

; Reads the description of the newest region into `work`; returns its number.
define internal i64 @receive(ptr %pool, ptr %work) nounwind {
entry:
  %region.at = getelementptr i8, ptr %pool, i64 192
  %shared = getelementptr i8, ptr %pool, i64 200
  br label %read
read:
  %region = load atomic i64, ptr %region.at acquire, align 8
  call void @copy_work(ptr %shared, ptr %work)
  fence acquire
  %after = load atomic i64, ptr %region.at monotonic, align 8
  %same = icmp eq i64 %region, %after
  %low = and i64 %region, 1
  %settled = icmp eq i64 %low, 0
  %whole = and i1 %same, %settled
  br i1 %whole, label %done, label %again
again:
  call void @relax()
  br label %read
done:
  ret i64 %region
}

define internal void @copy_work(ptr %from, ptr %to) nounwind {
  %body = load atomic ptr, ptr %from monotonic, align 8
  store atomic ptr %body, ptr %to monotonic, align 8
  %context.from = getelementptr %work, ptr %from, i32 0, i32 1
  %context = load atomic ptr, ptr %context.from monotonic, align 8
  %context.to = getelementptr %work, ptr %to, i32 0, i32 1
  store atomic ptr %context, ptr %context.to monotonic, align 8
  %extent.from = getelementptr %work, ptr %from, i32 0, i32 2
  %extent = load atomic i64, ptr %extent.from monotonic, align 8
  %extent.to = getelementptr %work, ptr %to, i32 0, i32 2
  store atomic i64 %extent, ptr %extent.to monotonic, align 8
  %chunks.from = getelementptr %work, ptr %from, i32 0, i32 3
  %chunks = load atomic i64, ptr %chunks.from monotonic, align 8
  %chunks.to = getelementptr %work, ptr %to, i32 0, i32 3
  store atomic i64 %chunks, ptr %chunks.to monotonic, align 8
  ret void
}

define internal void @wake_sleepers(ptr %pool) nounwind {
  %asleep.at = getelementptr i8, ptr %pool, i64 64
  %asleep = load atomic i32, ptr %asleep.at seq_cst, align 4
  %some = icmp ne i32 %asleep, 0
  br i1 %some, label %wake, label %done
wake:
  call void @part(ptr %pool)
  %bell.at = getelementptr i8, ptr %pool, i64 68
  %before = atomicrmw add ptr %bell.at, i32 1 seq_cst
  call void @futex(ptr %bell.at, i64 129, i64 2147483647)
  br label %done
done:
  ret void
}

; Runs chunks of `region` in the share of `owner` until all are claimed; a helper reports them.
; Returns the number of chunks that the worker ran, including `before`.
define internal i64 @run_share(ptr %pool, i64 %region, ptr %work, i64 %worker, i64 %owner,
                               i64 %before) nounwind {
entry:
  %own = call ptr @slot(ptr %pool, i64 %worker)
  %slot = call ptr @slot(ptr %pool, i64 %owner)
  %begin = call i64 @share_begin(ptr %pool, ptr %work, i64 %owner)
  %owner.next = add i64 %owner, 1
  %end = call i64 @share_begin(ptr %pool, ptr %work, i64 %owner.next)
  %region.placed = shl i64 %region, 16
  br label %look
look:
  %ran = phi i64 [ %before, %entry ], [ %ran, %try ], [ %ran.next, %run ]
  %claim = load atomic i64, ptr %slot acquire, align 8
  %claim.region = lshr i64 %claim, 16
  %over = icmp ugt i64 %claim.region, %region
  br i1 %over, label %leave, label %current
current:
  %begun = icmp eq i64 %claim.region, %region
  %claim.next = and i64 %claim, 65535
  %chunk = select i1 %begun, i64 %claim.next, i64 %begin
  %left = icmp ult i64 %chunk, %end
  br i1 %left, label %try, label %leave
try:
  %next = add i64 %chunk, 1
  %taken = or i64 %region.placed, %next
  %swap = cmpxchg ptr %slot, i64 %claim, i64 %taken acq_rel monotonic
  %won = extractvalue { i64, i1 } %swap, 1
  br i1 %won, label %run, label %look
run:
  call void @run_chunk(ptr %work, i64 %chunk, i64 %worker)
  %ran.next = add i64 %ran, 1
  br label %look
leave:
  %helps = icmp ne i64 %worker, 0
  %more.ran = icmp ne i64 %ran, %before
  %reports = and i1 %helps, %more.ran
  br i1 %reports, label %report, label %done
report:
  call void @report(ptr %pool, ptr %own, i64 %region, i64 %ran)
  br label %done
done:
  ret i64 %ran
}

; Returns the first chunk of a worker's share; for the worker after the last, the number of all
; chunks.
define internal i64 @share_begin(ptr %pool, ptr %work, i64 %worker) nounwind {
  %threads.at = getelementptr i8, ptr %pool, i64 8
  %threads = load i64, ptr %threads.at
  %chunks.at = getelementptr %work, ptr %work, i32 0, i32 3
  %chunks = load i64, ptr %chunks.at
  %before = mul i64 %chunks, %worker
  %worker.most = sub i64 %threads, 1
  %before.up = add i64 %before, %worker.most
  %begin = udiv i64 %before.up, %threads
  ret i64 %begin
}

; Runs chunks of `region` in the shares of other workers, until another region starts. Returns the
; number of chunks that the worker ran, including `before`.
define internal i64 @help(ptr %pool, i64 %region, ptr %work, i64 %worker, i64 %before) nounwind {
entry:
  %threads.at = getelementptr i8, ptr %pool, i64 8
  %threads = load i64, ptr %threads.at
  br label %next
next:
  %last = phi i64 [ %worker, %entry ], [ %owner, %share ]
  %ran = phi i64 [ %before, %entry ], [ %ran.next, %share ]
  %newest = call i64 @newest_region(ptr %pool)
  %current = icmp eq i64 %newest, %region
  br i1 %current, label %find, label %done
find:
  %ahead = add i64 %last, 1
  %wraps = icmp eq i64 %ahead, %threads
  %owner = select i1 %wraps, i64 0, i64 %ahead
  %around = icmp eq i64 %owner, %worker
  br i1 %around, label %done, label %share
share:
  %ran.next = call i64 @run_share(ptr %pool, i64 %region, ptr %work, i64 %worker, i64 %owner,
                                  i64 %ran)
  br label %next
done:
  ret i64 %ran
}

; Returns the time at which a worker that finished its own share at `done` looks for chunks in other
; shares. Each look takes a cache line away from the worker that owns it, so the delay grows with
; the number of threads.
define internal i64 @patient_until(ptr %pool, i64 %done) nounwind {
  %threads.at = getelementptr i8, ptr %pool, i64 8
  %threads = load i64, ptr %threads.at
  %more = sub i64 %threads, 2
  %budget = call i64 @spin_ticks()
  %each = udiv i64 %budget, 1024 ; 50 ns
  %patience = mul i64 %each, %more
  %until = add i64 %done, %patience
  ret i64 %until
}

; Returns true if the helpers report the `missing` chunks of `region` before the time at which the
; caller, which finished its own share at `done`, would look for them.
define internal i1 @is_finished_soon(ptr %pool, i64 %region, i64 %missing, i64 %done) nounwind {
entry:
  %until = call i64 @patient_until(ptr %pool, i64 %done)
  br label %look
look:
  %finished = call i1 @is_finished(ptr %pool, i64 %region, i64 %missing)
  br i1 %finished, label %return, label %wait
wait:
  call void @relax()
  %now = call i64 @clock()
  %late = icmp sge i64 %now, %until
  br i1 %late, label %return, label %look
return:
  %soon = phi i1 [ true, %look ], [ false, %wait ]
  ret i1 %soon
}

; Runs a claimed chunk. The region cannot end before the chunk does.
define internal void @run_chunk(ptr %work, i64 %chunk, i64 %worker) nounwind {
entry:
  %body = load ptr, ptr %work
  %context.at = getelementptr %work, ptr %work, i32 0, i32 1
  %context = load ptr, ptr %context.at
  %extent.at = getelementptr %work, ptr %work, i32 0, i32 2
  %extent = load i64, ptr %extent.at
  %chunks.at = getelementptr %work, ptr %work, i32 0, i32 3
  %chunks = load i64, ptr %chunks.at
  %chunk.next = add i64 %chunk, 1
  %single = icmp eq i64 %extent, %chunks
  br i1 %single, label %run, label %scale
scale:
  %begin.scaled = mul i64 %extent, %chunk
  %begin.among = udiv i64 %begin.scaled, %chunks
  %end.scaled = mul i64 %extent, %chunk.next
  %end.among = udiv i64 %end.scaled, %chunks
  br label %run
run:
  %begin = phi i64 [ %chunk, %entry ], [ %begin.among, %scale ]
  %end = phi i64 [ %chunk.next, %entry ], [ %end.among, %scale ]
  call void %body(ptr %context, i64 %begin, i64 %end, i64 %worker)
  ret void
}

; Reports that a helper has run `ran` chunks of `region` so far, and wakes the caller if it sleeps.
define internal void @report(ptr %pool, ptr %own, i64 %region, i64 %ran) nounwind {
entry:
  %report.at = getelementptr i8, ptr %own, i64 64
  %region.placed = shl i64 %region, 16
  %report = or i64 %region.placed, %ran
  %before = atomicrmw xchg ptr %report.at, i64 %report seq_cst
  %asleep.at = getelementptr i8, ptr %pool, i64 72
  %asleep = load atomic i32, ptr %asleep.at seq_cst, align 4
  %sleeps = icmp ne i32 %asleep, 0
  br i1 %sleeps, label %wake, label %done
wake:
  store atomic i32 0, ptr %asleep.at seq_cst, align 4
  call void @futex(ptr %asleep.at, i64 129, i64 1)
  br label %done
done:
  ret void
}

; Returns true if the helpers have reported `missing` chunks of `region`.
define internal i1 @is_finished(ptr %pool, i64 %region, i64 %missing) nounwind {
entry:
  %threads.at = getelementptr i8, ptr %pool, i64 8
  %threads = load i64, ptr %threads.at
  br label %look
look:
  %worker = phi i64 [ 1, %entry ], [ %worker.next, %look ]
  %open = phi i64 [ %missing, %entry ], [ %open.next, %look ]
  %slot = call ptr @slot(ptr %pool, i64 %worker)
  %report.at = getelementptr i8, ptr %slot, i64 64
  %report = load atomic i64, ptr %report.at seq_cst, align 8
  %report.region = lshr i64 %report, 16
  %current = icmp eq i64 %report.region, %region
  %count = and i64 %report, 65535
  %ran = select i1 %current, i64 %count, i64 0
  %open.next = sub i64 %open, %ran
  %worker.next = add i64 %worker, 1
  %more = icmp ult i64 %worker.next, %threads
  br i1 %more, label %look, label %done
done:
  %finished = icmp eq i64 %open.next, 0
  ret i1 %finished
}

; Waits until the helpers have run the `missing` chunks of `region`: spins, then sleeps.
define internal void @join(ptr %pool, i64 %region, i64 %missing) nounwind {
entry:
  %none = icmp eq i64 %missing, 0
  br i1 %none, label %done, label %first
first:
  %ready = call i1 @is_finished(ptr %pool, i64 %region, i64 %missing)
  br i1 %ready, label %done, label %begin
begin:
  %deadline = call i64 @spin_deadline()
  br label %spin
spin:
  %turn = phi i32 [ 0, %begin ], [ %turn.next, %again ]
  call void @relax()
  %reported = call i1 @is_finished(ptr %pool, i64 %region, i64 %missing)
  br i1 %reported, label %done, label %again
again:
  %turn.next = add i32 %turn, 1
  %late = call i1 @is_past(i32 %turn.next, i64 %deadline)
  br i1 %late, label %sleep, label %spin
sleep:
  %asleep.at = getelementptr i8, ptr %pool, i64 72
  %ignored = atomicrmw xchg ptr %asleep.at, i32 1 seq_cst
  %finished = call i1 @is_finished(ptr %pool, i64 %region, i64 %missing)
  br i1 %finished, label %rise, label %wait
wait:
  call void @futex(ptr %asleep.at, i64 128, i64 1)
  br label %sleep
rise:
  store atomic i32 0, ptr %asleep.at monotonic, align 4
  br label %done
done:
  ret void
}

; Updates the debt after a region in which the caller ran `ran` chunks from `start` to `worked`, and
; then waited or helped. Time beyond that of all chunks at the caller's pace is added to the debt,
; time saved is subtracted. A region cannot save more than all threads together can: a larger saving
; at that pace means that the caller itself was preempted, and is limited.
define internal void @settle(ptr %pool, i64 %start, i64 %worked, i64 %chunks, i64 %ran) nounwind {
entry:
  %end = call i64 @clock()
  %own = sub i64 %worked, %start
  %scaled = mul i64 %own, %chunks
  %paced = udiv i64 %scaled, %ran
  %took = sub i64 %end, %start
  %threads.at = getelementptr i8, ptr %pool, i64 8
  %threads = load i64, ptr %threads.at
  %slowest = mul i64 %took, %threads
  %possible = icmp slt i64 %paced, %slowest
  %alone = select i1 %possible, i64 %paced, i64 %slowest
  %loss = sub i64 %took, %alone
  %debt.at = getelementptr i8, ptr %pool, i64 152
  %debt.old = load i64, ptr %debt.at
  %debt.sum = add i64 %debt.old, %loss
  %budget = call i64 @spin_ticks()
  %most = mul i64 %budget, 1280
  %saved = sub i64 0, %most
  %owes = icmp sgt i64 %debt.sum, %saved
  %debt = select i1 %owes, i64 %debt.sum, i64 %saved
  store i64 %debt, ptr %debt.at
  %bearable = mul i64 %budget, 4
  %much = icmp sgt i64 %debt, %bearable
  br i1 %much, label %retire, label %done
retire:
  ; Not long ago: within four times as long as the last rest took.
  %until.at = getelementptr i8, ptr %pool, i64 136
  %until.old = load i64, ptr %until.at
  %rest.at = getelementptr i8, ptr %pool, i64 144
  %rest.old = load i64, ptr %rest.at
  %since = sub i64 %end, %until.old
  %long = mul i64 %rest.old, 4
  %recent = icmp slt i64 %since, %long
  %double = mul i64 %rest.old, 2
  %again = select i1 %recent, i64 %double, i64 0
  %longer = icmp sgt i64 %again, %debt
  %wanted = select i1 %longer, i64 %again, i64 %debt
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

; Separates the caller from a helper that is bound to the CPU where the caller runs: moves the
; helper to the CPU where the caller was before. A helper that has not started yet binds itself to
; that CPU; helpers of the process from which this process was forked stay where they are.
define internal void @part(ptr %pool) nounwind {
entry:
  %threads.at = getelementptr i8, ptr %pool, i64 8
  %threads = load i64, ptr %threads.at
  %caller = call ptr @slot(ptr %pool, i64 0)
  %home.at = getelementptr i8, ptr %caller, i64 16
  %home = load i32, ptr %home.at
  %here.at = alloca i32
  store i32 %home, ptr %here.at
  %number = load i64, ptr @getcpu_number
  %here.to = ptrtoint ptr %here.at to i64
  %ignored = call i64 @syscall(i64 %number, i64 %here.to, i64 0, i64 0, i64 0)
  %here = load i32, ptr %here.at
  %free = icmp slt i32 %home, 0
  %expected = icmp eq i32 %home, %here
  %apart = or i1 %free, %expected
  br i1 %apart, label %done, label %look
look:
  %worker = phi i64 [ 1, %entry ], [ %worker.next, %other ]
  %slot = call ptr @slot(ptr %pool, i64 %worker)
  %cpu.at = getelementptr i8, ptr %slot, i64 16
  %cpu = load atomic i32, ptr %cpu.at monotonic, align 4
  %meets = icmp eq i32 %cpu, %here
  br i1 %meets, label %move, label %other
other:
  %worker.next = add i64 %worker, 1
  %more = icmp ult i64 %worker.next, %threads
  br i1 %more, label %look, label %done
move:
  store i32 %here, ptr %home.at
  store atomic i32 %home, ptr %cpu.at seq_cst, align 4
  %thread.at = getelementptr i8, ptr %slot, i64 20
  %thread = load atomic i32, ptr %thread.at seq_cst, align 4
  %begun = icmp ne i32 %thread, 0
  br i1 %begun, label %check, label %done
check:
  %process = call i32 @current_process()
  %process.at = getelementptr i8, ptr %pool, i64 20
  %made = load i32, ptr %process.at
  %same = icmp eq i32 %made, %process
  br i1 %same, label %bind, label %done
bind:
  call void @bind(i32 %thread, i32 %home)
  br label %done
done:
  ret void
}

; Registers the running thread as the helper of `slot`, and binds it to its CPU, or to another CPU
; if the caller requests that meanwhile.
define internal void @settle_down(ptr %slot) nounwind {
entry:
  %number = load i64, ptr @gettid_number
  %thread.wide = call i64 @syscall(i64 %number, i64 0, i64 0, i64 0, i64 0)
  %thread = trunc i64 %thread.wide to i32
  %thread.at = getelementptr i8, ptr %slot, i64 20
  store atomic i32 %thread, ptr %thread.at seq_cst, align 4
  %cpu.at = getelementptr i8, ptr %slot, i64 16
  br label %place
place:
  %cpu = load atomic i32, ptr %cpu.at seq_cst, align 4
  %free = icmp slt i32 %cpu, 0
  br i1 %free, label %done, label %bind
bind:
  call void @bind(i32 %thread, i32 %cpu)
  %now = load atomic i32, ptr %cpu.at seq_cst, align 4
  %stays = icmp eq i32 %now, %cpu
  br i1 %stays, label %done, label %place
done:
  ret void
}

define internal i32 @current_process() nounwind {
  %number = load i64, ptr @getpid_number
  %process.wide = call i64 @syscall(i64 %number, i64 0, i64 0, i64 0, i64 0)
  %process = trunc i64 %process.wide to i32
  ret i32 %process
}

; Binds a thread to a CPU.
define internal void @bind(i32 %thread, i32 %cpu) nounwind {
entry:
  %mask = alloca [128 x i64] ; of 8,192 CPUs
  br label %clear
clear:
  %at = phi i64 [ 0, %entry ], [ %at.next, %clear ]
  %word = getelementptr i64, ptr %mask, i64 %at
  store i64 0, ptr %word
  %at.next = add i64 %at, 1
  %more = icmp ult i64 %at.next, 128
  br i1 %more, label %clear, label %set
set:
  %cpu.wide = zext i32 %cpu to i64
  %position = lshr i64 %cpu.wide, 6
  %bit = and i64 %cpu.wide, 63
  %value = shl i64 1, %bit
  %place = getelementptr i64, ptr %mask, i64 %position
  store i64 %value, ptr %place
  %number = load i64, ptr @sched_setaffinity_number
  %thread.wide = zext i32 %thread to i64
  %mask.to = ptrtoint ptr %mask to i64
  %ignored = call i64 @syscall(i64 %number, i64 %thread.wide, i64 1024, i64 %mask.to, i64 0)
  ret void
}

; Makes a futex call: operation `op` on the i32 at `word`.
define internal void @futex(ptr %word, i64 %op, i64 %value) nounwind {
  %number = load i64, ptr @futex_number
  %address = ptrtoint ptr %word to i64
  %ignored = call i64 @syscall(i64 %number, i64 %address, i64 %op, i64 %value, i64 0)
  ret void
}

; Returns the time at which a spin that starts now ends.
define internal i64 @spin_deadline() nounwind {
  %start = call i64 @clock()
  %budget = call i64 @spin_ticks()
  %deadline = add i64 %start, %budget
  ret i64 %deadline
}

; Returns true if a spin has reached its deadline. It reads the clock every 32 iterations.
define internal i1 @is_past(i32 %turn, i64 %deadline) nounwind {
entry:
  %between = and i32 %turn, 31
  %asks = icmp eq i32 %between, 0
  br i1 %asks, label %ask, label %early
ask:
  %now = call i64 @clock()
  %late = icmp sgt i64 %now, %deadline
  ret i1 %late
early:
  ret i1 false
}

define void @farrier_pool_work(ptr %pool, i64 %worker) nounwind {
entry:
  %work = alloca %work
  %slot = call ptr @slot(ptr %pool, i64 %worker)
  %self.at = getelementptr i8, ptr %slot, i64 8
  %self = call i64 @thread_pointer()
  store atomic i64 %self, ptr %self.at release, align 8
  call void @settle_down(ptr %slot)
  br label %idle
idle:
  %seen = phi i64 [ 0, %entry ], [ %region, %help ]
  %now = call i64 @newest_region(ptr %pool)
  %called = icmp ne i64 %now, %seen
  br i1 %called, label %awake, label %begin
begin:
  %deadline = call i64 @spin_deadline()
  br label %spin
spin:
  %turn = phi i32 [ 0, %begin ], [ %turn.next, %again ]
  call void @relax()
  %latest = call i64 @newest_region(ptr %pool)
  %begun = icmp ne i64 %latest, %seen
  br i1 %begun, label %awake, label %again
again:
  %turn.next = add i32 %turn, 1
  %late = call i1 @is_past(i32 %turn.next, i64 %deadline)
  br i1 %late, label %drowse, label %spin
drowse:
  %asleep.at = getelementptr i8, ptr %pool, i64 64
  %bell.at = getelementptr i8, ptr %pool, i64 68
  %before = atomicrmw add ptr %asleep.at, i32 1 seq_cst
  br label %recheck
recheck:
  %bell = load atomic i32, ptr %bell.at seq_cst, align 4
  %region.at = getelementptr i8, ptr %pool, i64 192
  %region.now = load atomic i64, ptr %region.at seq_cst, align 8
  %quiet = icmp eq i64 %region.now, %seen
  br i1 %quiet, label %sleep, label %rise
sleep:
  %bell.wide = zext i32 %bell to i64
  call void @futex(ptr %bell.at, i64 128, i64 %bell.wide)
  br label %recheck
rise:
  %after = atomicrmw sub ptr %asleep.at, i32 1 seq_cst
  br label %awake
awake:
  %region = call i64 @receive(ptr %pool, ptr %work)
  %body = load ptr, ptr %work
  %over = icmp eq ptr %body, null
  br i1 %over, label %leave, label %take
take:
  %ran = call i64 @run_share(ptr %pool, i64 %region, ptr %work, i64 %worker, i64 %worker, i64 0)
  %done = call i64 @clock()
  %until = call i64 @patient_until(ptr %pool, i64 %done)
  br label %patient
patient:
  %newest = call i64 @newest_region(ptr %pool)
  %next = icmp ne i64 %newest, %region
  br i1 %next, label %awake, label %wait
wait:
  %time = call i64 @clock()
  %waited = icmp sge i64 %time, %until
  br i1 %waited, label %help, label %rest
rest:
  call void @relax()
  br label %patient
help:
  %helped = call i64 @help(ptr %pool, i64 %region, ptr %work, i64 %worker, i64 %ran)
  br label %idle
leave:
  ret void
}

define void @farrier_pool_shutdown(ptr %pool) nounwind {
  %work = alloca %work
  store ptr null, ptr %work
  %ignored = call i64 @publish(ptr %pool, ptr %work)
  fence seq_cst ; a helper that falls asleep at this moment is woken
  call void @wake_sleepers(ptr %pool)
  ret void
}
