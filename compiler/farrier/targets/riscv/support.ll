; What the machine must give: Linux on riscv64.
;
; The primitives are machine words in a section of their own, since LLVM assembles inline assembly only
; for the architecture it runs on, and this object is also made on build hosts of another one.

@futex_number = internal constant i64 98
@getcpu_number = internal constant i64 168
@sched_setaffinity_number = internal constant i64 122
@gettid_number = internal constant i64 178
@getpid_number = internal constant i64 172

; syscall(number, a, b, c, d): mv a7, a0; mv a0, a1; mv a1, a2; mv a2, a3; mv a3, a4; ecall; ret
@syscall = internal constant [7 x i32] [i32 u0x00050893, i32 u0x00058513, i32 u0x00060593, i32 u0x00068613, i32 u0x00070693, i32 u0x00000073, i32 u0x00008067], section ".text.farrier_words", align 4
; pause, a hint that cores without it take for a fence of nothing; ret
@relax_words = internal constant [2 x i32] [i32 u0x0100000F, i32 u0x00008067], section ".text.farrier_words", align 4
; mv a0, tp; ret
@thread_pointer_words = internal constant [2 x i32] [i32 u0x00020513, i32 u0x00008067], section ".text.farrier_words", align 4
; fence; rdtime a0; fence; ret
@ticks_words = internal constant [4 x i32] [i32 u0x0FF0000F, i32 u0xC0102573, i32 u0x0FF0000F, i32 u0x00008067], section ".text.farrier_words", align 4
; rdtime a0; ret
@clock_words = internal constant [2 x i32] [i32 u0xC0102573, i32 u0x00008067], section ".text.farrier_words", align 4

define internal void @relax() nounwind {
  call void @relax_words()
  ret void
}

; A number that no two running threads share: the thread's pointer.
define internal i64 @thread_pointer() nounwind {
  %pointer = call i64 @thread_pointer_words()
  ret i64 %pointer
}

; Nothing before it runs after it, and nothing after it before: cores in order keep the order of
; instructions, and the fences that of memory. Cycles would be finer, but Linux keeps programs from
; them.
define i64 @farrier_ticks() nounwind {
  %ticks = call i64 @ticks_words()
  ret i64 %ticks
}

; The same counter where it need not be exact.
define internal i64 @clock() nounwind {
  %ticks = call i64 @clock_words()
  ret i64 %ticks
}

; Ticks that the spin before a sleep may take. No instruction tells the counter's frequency: it is
; 4 MHz on a JH7110 and 24 MHz on a K1, where these are 250 and 42 us.
define internal i64 @spin_ticks() nounwind {
  ret i64 1000
}

; No instruction that every core has, and programs may use, empties a line of a cache, so the fence
; after the lines drives everything out.
@is_to_evict = internal global i1 false

define internal void @flush_line(ptr %line) nounwind {
  store i1 true, ptr @is_to_evict
  ret void
}

; Fill the caches with memory that nothing else reads, where lines were to be flushed. Pages that
; were never written are all one page of zeros, so this writes.
define internal void @flush_fence() nounwind {
entry:
  %is.asked = load i1, ptr @is_to_evict
  br i1 %is.asked, label %evict, label %done
evict:
  store i1 false, ptr @is_to_evict
  %bytes = load i64, ptr @evicting_bytes
  br label %line
line:
  %offset = phi i64 [ 0, %evict ], [ %offset.next, %line ]
  %address = getelementptr i8, ptr @evicting, i64 %offset
  store volatile i8 1, ptr %address
  %offset.next = add i64 %offset, 64
  %more = icmp ult i64 %offset.next, %bytes
  br i1 %more, label %line, label %done
done:
  fence seq_cst
  ret void
}
