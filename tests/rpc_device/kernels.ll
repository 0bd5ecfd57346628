; Entry points for the device's tests: y = 2x over f32[1009], args = {x, y, scratch}, done right and
; wrong in the ways that candidates go wrong. System calls are in a file of the architecture, which is
; read with this one: call3, and their numbers.

; y[begin..end) = 2 * x[begin..end); `context` is args.
define internal void @double_range(ptr %context, i64 %begin, i64 %end, i64 %worker) {
entry:
  %x = load ptr, ptr %context
  %y.at = getelementptr ptr, ptr %context, i64 1
  %y = load ptr, ptr %y.at
  br label %check
check:
  %i = phi i64 [ %begin, %entry ], [ %i.next, %body ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %body, label %done
body:
  %from = getelementptr float, ptr %x, i64 %i
  %value = load float, ptr %from
  %twice = fadd float %value, %value
  %to = getelementptr float, ptr %y, i64 %i
  store float %twice, ptr %to
  %i.next = add i64 %i, 1
  br label %check
done:
  ret void
}

define i32 @right(ptr %args, ptr %pool) {
  call void @double_range(ptr %args, i64 0, i64 1009, i64 0)
  ret i32 0
}

define i32 @right_in_parallel(ptr %args, ptr %pool) {
  %parallel_for = load ptr, ptr %pool
  call void %parallel_for(ptr %pool, ptr @double_range, ptr %args, i64 1009)
  ret i32 0
}

; Leaves the last element at zero.
define i32 @wrong(ptr %args, ptr %pool) {
  call void @double_range(ptr %args, i64 0, i64 1008, i64 0)
  ret i32 0
}

; Adds to y instead of storing: right only where y was zero.
define i32 @accumulating(ptr %args, ptr %pool) {
entry:
  %x = load ptr, ptr %args
  %y.at = getelementptr ptr, ptr %args, i64 1
  %y = load ptr, ptr %y.at
  br label %body
body:
  %i = phi i64 [ 0, %entry ], [ %i.next, %body ]
  %from = getelementptr float, ptr %x, i64 %i
  %value = load float, ptr %from
  %twice = fadd float %value, %value
  %to = getelementptr float, ptr %y, i64 %i
  %old = load float, ptr %to
  %sum = fadd float %old, %twice
  store float %sum, ptr %to
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, 1009
  br i1 %more, label %body, label %done
done:
  ret i32 0
}

; Writes a mark into the scratch; `needs_prepare` fails without it.
define i32 @prepare(ptr %args, ptr %pool) {
  %scratch.at = getelementptr ptr, ptr %args, i64 2
  %scratch = load ptr, ptr %scratch.at
  store i32 77, ptr %scratch
  ret i32 0
}

define i32 @needs_prepare(ptr %args, ptr %pool) {
  %scratch.at = getelementptr ptr, ptr %args, i64 2
  %scratch = load ptr, ptr %scratch.at
  %mark = load i32, ptr %scratch
  call void @double_range(ptr %args, i64 0, i64 1009, i64 0)
  %missing = sub i32 77, %mark
  ret i32 %missing
}

define i32 @crash(ptr %args, ptr %pool) {
  store volatile i32 1, ptr null
  ret i32 0
}

define i32 @hang(ptr %args, ptr %pool) {
  br label %forever
forever:
  call void asm sideeffect "", ""()
  br label %forever
}

; Nanoseconds of CLOCK_MONOTONIC.
define internal i64 @now() {
  %time = alloca [2 x i64]
  %at = ptrtoint ptr %time to i64
  %number = load i64, ptr @clock_gettime_number
  %answer = call i64 @call3(i64 %number, i64 1, i64 %at, i64 0)
  %seconds = load i64, ptr %time
  %rest.at = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest.at
  %whole = mul i64 %seconds, 1000000000
  %all = add i64 %whole, %rest
  ret i64 %all
}

; So many nanoseconds a call on any machine.
define internal i32 @right_after(ptr %args, i64 %nanoseconds) {
entry:
  %start = call i64 @now()
  %end = add i64 %start, %nanoseconds
  br label %spin
spin:
  %time = call i64 @now()
  %more = icmp slt i64 %time, %end
  br i1 %more, label %spin, label %done
done:
  call void @double_range(ptr %args, i64 0, i64 1009, i64 0)
  ret i32 0
}

define i32 @slow(ptr %args, ptr %pool) {
  %code = call i32 @right_after(ptr %args, i64 300000000)
  ret i32 %code
}

define i32 @takes_50us(ptr %args, ptr %pool) {
  %code = call i32 @right_after(ptr %args, i64 50000)
  ret i32 %code
}

define i32 @takes_1000us(ptr %args, ptr %pool) {
  %code = call i32 @right_after(ptr %args, i64 1000000)
  ret i32 %code
}

define i32 @takes_1070us(ptr %args, ptr %pool) {
  %code = call i32 @right_after(ptr %args, i64 1070000)
  ret i32 %code
}

define i32 @takes_1200us(ptr %args, ptr %pool) {
  %code = call i32 @right_after(ptr %args, i64 1200000)
  ret i32 %code
}

; 150 us for each of its first 6 calls, and 50 us from then on.
@calls = internal global i32 0

define i32 @slow_at_first(ptr %args, ptr %pool) {
entry:
  %before = load i32, ptr @calls
  %number = add i32 %before, 1
  store i32 %number, ptr @calls
  %slow = icmp sle i32 %number, 6
  %ns = select i1 %slow, i64 150000, i64 50000
  %code = call i32 @right_after(ptr %args, i64 %ns)
  ret i32 %code
}

; What the library's data tells `by_mark` to do: 0 to be right, 1 to crash, 2 to hang, 3 to be wrong.
@mark = internal global i32 0

define i32 @by_mark(ptr %args, ptr %pool) {
entry:
  %how = load volatile i32, ptr @mark
  switch i32 %how, label %fair [ i32 1, label %fatal
                                 i32 2, label %endless
                                 i32 3, label %false ]
fair:
  %right = call i32 @right(ptr %args, ptr %pool)
  ret i32 %right
fatal:
  %fallen = call i32 @crash(ptr %args, ptr %pool)
  ret i32 %fallen
endless:
  %never = call i32 @hang(ptr %args, ptr %pool)
  ret i32 %never
false:
  %wrong = call i32 @wrong(ptr %args, ptr %pool)
  ret i32 %wrong
}

; Right, but for what they leave in the data of the library, and in that of the pool.
define i32 @spoil_1(ptr %args, ptr %pool) {
  store volatile i32 1, ptr @mark
  %code = call i32 @right(ptr %args, ptr %pool)
  ret i32 %code
}

define i32 @spoil_2(ptr %args, ptr %pool) {
  store volatile i32 2, ptr @mark
  %code = call i32 @right(ptr %args, ptr %pool)
  ret i32 %code
}

define i32 @spoil_3(ptr %args, ptr %pool) {
  store volatile i32 3, ptr @mark
  %code = call i32 @right(ptr %args, ptr %pool)
  ret i32 %code
}

define i32 @spoil_pool(ptr %args, ptr %pool) {
  %code = call i32 @right(ptr %args, ptr %pool)
  store volatile ptr null, ptr %pool
  ret i32 %code
}

; Leaves a pool that tells none of its threads to end.
define i32 @spoil_end(ptr %args, ptr %pool) {
  %threads = getelementptr i64, ptr %pool, i64 1
  store volatile i64 1, ptr %threads
  %code = call i32 @right(ptr %args, ptr %pool)
  ret i32 %code
}

define i32 @code_three(ptr %args, ptr %pool) {
  ret i32 3
}

; As the entry of a model does whose check 1 refuses the inputs.
define i32 @refuse(ptr %args, ptr %pool) {
  ret i32 -2
}

; Each returns -errno of its system call as a positive code, or 200 where the call went through.
define internal i32 @code_of(i64 %answer) {
  %failed = icmp slt i64 %answer, 0
  %errno = sub i64 0, %answer
  %code = select i1 %failed, i64 %errno, i64 200
  %short = trunc i64 %code to i32
  ret i32 %short
}

; socket(AF_INET, SOCK_STREAM, 0)
define i32 @open_socket(ptr %args, ptr %pool) {
  %number = load i64, ptr @socket_number
  %answer = call i64 @call3(i64 %number, i64 2, i64 1, i64 0)
  %code = call i32 @code_of(i64 %answer)
  ret i32 %code
}

@file = private constant [24 x i8] c"/tmp/farrier-escapement\00"
@passwd = private constant [12 x i8] c"/etc/passwd\00"

; openat(AT_FDCWD, "/tmp/farrier-escapement", O_WRONLY | O_CREAT)
define i32 @write_file_at(ptr %args, ptr %pool) {
  %path = ptrtoint ptr @file to i64
  %number = load i64, ptr @openat_number
  %answer = call i64 @call3(i64 %number, i64 -100, i64 %path, i64 65)
  %code = call i32 @code_of(i64 %answer)
  ret i32 %code
}

; openat(AT_FDCWD, "/etc/passwd", O_RDONLY)
define i32 @read_file(ptr %args, ptr %pool) {
  %path = ptrtoint ptr @passwd to i64
  %number = load i64, ptr @openat_number
  %answer = call i64 @call3(i64 %number, i64 -100, i64 %path, i64 0)
  %code = call i32 @code_of(i64 %answer)
  ret i32 %code
}

; clone(SIGCHLD, 0, 0): a process by another name
define i32 @clone_process(ptr %args, ptr %pool) {
  %number = load i64, ptr @clone_number
  %answer = call i64 @call3(i64 %number, i64 17, i64 0, i64 0)
  %code = call i32 @code_of(i64 %answer)
  ret i32 %code
}

; execve("/etc/passwd", 0, 0)
define i32 @exec(ptr %args, ptr %pool) {
  %path = ptrtoint ptr @passwd to i64
  %number = load i64, ptr @execve_number
  %answer = call i64 @call3(i64 %number, i64 %path, i64 0, i64 0)
  %code = call i32 @code_of(i64 %answer)
  ret i32 %code
}

; ptrace(PTRACE_TRACEME)
define i32 @trace(ptr %args, ptr %pool) {
  %number = load i64, ptr @ptrace_number
  %answer = call i64 @call3(i64 %number, i64 0, i64 0, i64 0)
  %code = call i32 @code_of(i64 %answer)
  ret i32 %code
}

; kill(1, 0)
define i32 @signal_init(ptr %args, ptr %pool) {
  %number = load i64, ptr @kill_number
  %answer = call i64 @call3(i64 %number, i64 1, i64 0, i64 0)
  %code = call i32 @code_of(i64 %answer)
  ret i32 %code
}

; exit_group(5): leaves without a word
define i32 @leave(ptr %args, ptr %pool) {
  %number = load i64, ptr @exit_group_number
  %answer = call i64 @call3(i64 %number, i64 5, i64 0, i64 0)
  ret i32 0
}
