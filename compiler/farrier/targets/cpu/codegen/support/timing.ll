; Timing of one entry point with chosen memory cold.

; Flushes from every cache: `count` pairs (address, bytes) at `ranges`.
define internal void @flush_ranges(ptr %ranges, i64 %count) nounwind {
entry:
  br label %pick
pick:
  %pair = phi i64 [ 0, %entry ], [ %pair.next, %picked ]
  %more = icmp slt i64 %pair, %count
  br i1 %more, label %range, label %done
range:
  %first = mul i64 %pair, 16
  %base.at = getelementptr i8, ptr %ranges, i64 %first
  %bytes.at = getelementptr i8, ptr %base.at, i64 8
  %base = load ptr, ptr %base.at
  %bytes = load i64, ptr %bytes.at
  br label %lines
lines:
  %offset = phi i64 [ 0, %range ], [ %offset.next, %line ]
  %within = icmp slt i64 %offset, %bytes
  br i1 %within, label %line, label %picked
line:
  %address = getelementptr i8, ptr %base, i64 %offset
  call void @flush_line(ptr %address)
  %offset.next = add i64 %offset, 64
  br label %lines
picked:
  %pair.next = add i64 %pair, 1
  br label %pick
done:
  call void @flush_fence()
  ret void
}

; Times `repeats` calls one by one into ticks_out[0..repeats), each after a flush of the ranges.
; Returns the first non-zero code of the entry, or 0.
define i32 @farrier_time(ptr %entry.code, ptr %args, ptr %pool, ptr %flush, i64 %n_flush, i64 %repeats, ptr %ticks_out) nounwind {
entry:
  br label %next
next:
  %call = phi i64 [ 0, %entry ], [ %call.next, %passed ]
  %more = icmp slt i64 %call, %repeats
  br i1 %more, label %run, label %done
run:
  call void @flush_ranges(ptr %flush, i64 %n_flush)
  %start = call i64 @farrier_ticks()
  %code = call i32 %entry.code(ptr %args, ptr %pool)
  %end = call i64 @farrier_ticks()
  %ticks = sub i64 %end, %start
  %out = getelementptr i64, ptr %ticks_out, i64 %call
  store i64 %ticks, ptr %out
  %failed = icmp ne i32 %code, 0
  br i1 %failed, label %fail, label %passed
passed:
  %call.next = add i64 %call, 1
  br label %next
fail:
  ret i32 %code
done:
  ret i32 0
}
