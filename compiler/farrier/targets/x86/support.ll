; What the machine must give: Linux on x86-64.

@futex_number = internal constant i64 202
@getcpu_number = internal constant i64 309
@sched_setaffinity_number = internal constant i64 203
@gettid_number = internal constant i64 186
@getpid_number = internal constant i64 39

define internal i64 @syscall(i64 %number, i64 %a, i64 %b, i64 %c, i64 %d) nounwind {
  %result = call i64 asm sideeffect "syscall", "={rax},{rax},{rdi},{rsi},{rdx},{r10},~{rcx},~{r11},~{memory},~{dirflag},~{fpsr},~{flags}"(i64 %number, i64 %a, i64 %b, i64 %c, i64 %d)
  ret i64 %result
}

define internal void @relax() nounwind {
  call void asm sideeffect "pause", "~{memory},~{dirflag},~{fpsr},~{flags}"()
  ret void
}

; A number that no two running threads share: the address of the thread's control block.
define internal i64 @thread_pointer() nounwind {
  %pointer = call i64 asm "movq %fs:0, $0", "=r,~{dirflag},~{fpsr},~{flags}"()
  ret i64 %pointer
}

; Nothing before it runs after it, and nothing after it before.
define i64 @farrier_ticks() nounwind {
  %halves = call { i32, i32 } asm sideeffect "lfence\0A\09rdtsc\0A\09lfence", "={eax},={edx},~{memory},~{dirflag},~{fpsr},~{flags}"()
  %low = extractvalue { i32, i32 } %halves, 0
  %high = extractvalue { i32, i32 } %halves, 1
  %low.wide = zext i32 %low to i64
  %high.wide = zext i32 %high to i64
  %high.placed = shl i64 %high.wide, 32
  %ticks = or i64 %high.placed, %low.wide
  ret i64 %ticks
}

; The same counter where it need not be exact: 20 ns less.
define internal i64 @clock() nounwind {
  %halves = call { i32, i32 } asm sideeffect "rdtsc", "={eax},={edx},~{dirflag},~{fpsr},~{flags}"()
  %low = extractvalue { i32, i32 } %halves, 0
  %high = extractvalue { i32, i32 } %halves, 1
  %low.wide = zext i32 %low to i64
  %high.wide = zext i32 %high to i64
  %high.placed = shl i64 %high.wide, 32
  %ticks = or i64 %high.placed, %low.wide
  ret i64 %ticks
}

; Ticks that the spin before a sleep may take: 35 to 65 us on counters of 2 to 3.8 GHz.
define internal i64 @spin_ticks() nounwind {
  ret i64 131072
}

define internal void @flush_line(ptr %line) nounwind {
  call void asm sideeffect "clflush ($0)", "r,~{memory},~{dirflag},~{fpsr},~{flags}"(ptr %line)
  ret void
}

define internal void @flush_fence() nounwind {
  call void asm sideeffect "mfence", "~{memory},~{dirflag},~{fpsr},~{flags}"()
  ret void
}
