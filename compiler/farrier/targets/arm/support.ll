; What the machine must give: Linux on aarch64.
;
; The primitives are machine words in a section of their own, since LLVM assembles inline assembly only
; for the architecture it runs on, and this object is also made on build hosts of another one.

@futex_number = internal constant i64 98
@getcpu_number = internal constant i64 168
@sched_setaffinity_number = internal constant i64 122
@gettid_number = internal constant i64 178
@getpid_number = internal constant i64 172

; syscall(number, a, b, c, d): mov x8, x0; mov x0, x1; mov x1, x2; mov x2, x3; mov x3, x4; svc #0; ret
@syscall = internal constant [7 x i32] [i32 u0xAA0003E8, i32 u0xAA0103E0, i32 u0xAA0203E1, i32 u0xAA0303E2, i32 u0xAA0403E3, i32 u0xD4000001, i32 u0xD65F03C0], section ".text.farrier_words", align 4
; yield; ret
@relax_words = internal constant [2 x i32] [i32 u0xD503203F, i32 u0xD65F03C0], section ".text.farrier_words", align 4
; mrs x0, tpidr_el0; ret
@thread_pointer_words = internal constant [2 x i32] [i32 u0xD53BD040, i32 u0xD65F03C0], section ".text.farrier_words", align 4
; isb; mrs x0, cntvct_el0; isb; ret
@ticks_words = internal constant [4 x i32] [i32 u0xD5033FDF, i32 u0xD53BE040, i32 u0xD5033FDF, i32 u0xD65F03C0], section ".text.farrier_words", align 4
; mrs x0, cntfrq_el0; ret
@frequency_words = internal constant [2 x i32] [i32 u0xD53BE000, i32 u0xD65F03C0], section ".text.farrier_words", align 4
; dc civac, x0; ret
@flush_line_words = internal constant [2 x i32] [i32 u0xD50B7E20, i32 u0xD65F03C0], section ".text.farrier_words", align 4
; dsb sy; ret
@flush_fence_words = internal constant [2 x i32] [i32 u0xD5033F9F, i32 u0xD65F03C0], section ".text.farrier_words", align 4

define internal void @relax() nounwind {
  call void @relax_words()
  ret void
}

; A number that no two running threads share: the thread's control register.
define internal i64 @thread_pointer() nounwind {
  %pointer = call i64 @thread_pointer_words()
  ret i64 %pointer
}

; Nothing before it runs after it, and nothing after it before.
define i64 @farrier_ticks() nounwind {
  %ticks = call i64 @ticks_words()
  ret i64 %ticks
}

; The same counter where it need not be exact.
define internal i64 @clock() nounwind {
  %ticks = call i64 @ticks_words()
  ret i64 %ticks
}

; Ticks that the spin before a sleep may take: 50 us.
define internal i64 @spin_ticks() nounwind {
  %frequency = call i64 @frequency_words()
  %ticks = udiv i64 %frequency, 20000
  ret i64 %ticks
}

define internal void @flush_line(ptr %line) nounwind {
  call void @flush_line_words(ptr %line)
  ret void
}

define internal void @flush_fence() nounwind {
  call void @flush_fence_words()
  ret void
}
