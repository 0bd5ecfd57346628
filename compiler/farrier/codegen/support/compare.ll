; How far an output is from what is expected.

; Element `at` of an array as a double, by dtype code: 0 f32, 1 f64, 2 i8, 3 i32, 4 i64, 5 u8, 6 bf16.
define internal double @element(ptr %array, i64 %at, i64 %dtype) nounwind {
entry:
  switch i64 %dtype, label %u8 [ i64 0, label %f32  i64 1, label %f64  i64 2, label %i8  i64 3, label %i32  i64 4, label %i64  i64 6, label %bf16 ]
f32:
  %f32.at = getelementptr float, ptr %array, i64 %at
  %f32.value = load float, ptr %f32.at
  %f32.wide = fpext float %f32.value to double
  ret double %f32.wide
f64:
  %f64.at = getelementptr double, ptr %array, i64 %at
  %f64.value = load double, ptr %f64.at
  ret double %f64.value
i8:
  %i8.at = getelementptr i8, ptr %array, i64 %at
  %i8.value = load i8, ptr %i8.at
  %i8.wide = sitofp i8 %i8.value to double
  ret double %i8.wide
i32:
  %i32.at = getelementptr i32, ptr %array, i64 %at
  %i32.value = load i32, ptr %i32.at
  %i32.wide = sitofp i32 %i32.value to double
  ret double %i32.wide
i64:
  %i64.at = getelementptr i64, ptr %array, i64 %at
  %i64.value = load i64, ptr %i64.at
  %i64.wide = sitofp i64 %i64.value to double
  ret double %i64.wide
u8:
  %u8.at = getelementptr i8, ptr %array, i64 %at
  %u8.value = load i8, ptr %u8.at
  %u8.wide = uitofp i8 %u8.value to double
  ret double %u8.wide
bf16:
  %bf16.at = getelementptr i16, ptr %array, i64 %at
  %bf16.value = load i16, ptr %bf16.at
  %bf16.extended = zext i16 %bf16.value to i32
  %bf16.bits = shl i32 %bf16.extended, 16
  %bf16.single = bitcast i32 %bf16.bits to float
  %bf16.wide = fpext float %bf16.single to double
  ret double %bf16.wide
}

; Whether a float of `expected` marks an element of a layout's padding, which holds anything.
define internal i1 @is_padding(ptr %expected, i64 %at, i64 %dtype) nounwind {
entry:
  switch i64 %dtype, label %no [ i64 0, label %f32  i64 6, label %bf16 ]
f32:
  %f32.at = getelementptr i32, ptr %expected, i64 %at
  %f32.bits = load i32, ptr %f32.at
  %f32.marked = icmp eq i32 %f32.bits, u0x7FC0DEAD
  ret i1 %f32.marked
bf16:
  %bf16.at = getelementptr i16, ptr %expected, i64 %at
  %bf16.bits = load i16, ptr %bf16.at
  %bf16.marked = icmp eq i16 %bf16.bits, u0x7FED
  ret i1 %bf16.marked
no:
  ret i1 false
}

; Whether two i64 differ although their doubles are equal.
define internal i1 @differ_as_i64(ptr %left, ptr %right, i64 %at, i64 %dtype) nounwind {
entry:
  %integer = icmp eq i64 %dtype, 4
  br i1 %integer, label %look, label %no
look:
  %left.at = getelementptr i64, ptr %left, i64 %at
  %right.at = getelementptr i64, ptr %right, i64 %at
  %left.value = load i64, ptr %left.at
  %right.value = load i64, ptr %right.at
  %differ = icmp ne i64 %left.value, %right.value
  ret i1 %differ
no:
  ret i1 false
}

define internal double @largest_finite(ptr %expected, i64 %count, i64 %dtype) nounwind {
entry:
  br label %next
next:
  %at = phi i64 [ 0, %entry ], [ %at.next, %look ]
  %largest = phi double [ 0x3810000000000000, %entry ], [ %larger, %look ]
  %more = icmp slt i64 %at, %count
  br i1 %more, label %look, label %done
look:
  %value = call double @element(ptr %expected, i64 %at, i64 %dtype)
  %size = call double @llvm.fabs.f64(double %value)
  %above = fcmp ogt double %size, %largest
  %finite = fcmp olt double %size, 0x7FF0000000000000
  %take = and i1 %above, %finite
  %larger = select i1 %take, double %size, double %largest
  %at.next = add i64 %at, 1
  br label %next
done:
  ret double %largest
}

; max |out - expected| / max |expected|, the latter at least the smallest normal f32. NaN equals NaN,
; an infinity equals itself; any other non-finite difference is infinite.
define double @farrier_max_error(ptr %out, ptr %expected, i64 %count, i64 %dtype) nounwind {
entry:
  %scale = call double @largest_finite(ptr %expected, i64 %count, i64 %dtype)
  br label %next
next:
  %at = phi i64 [ 0, %entry ], [ %at.next, %skip ], [ %at.next, %differ ]
  %worst = phi double [ 0.0, %entry ], [ %worst, %skip ], [ %worse, %differ ]
  %at.next = add i64 %at, 1
  %more = icmp slt i64 %at, %count
  br i1 %more, label %look, label %done
look:
  %padding = call i1 @is_padding(ptr %expected, i64 %at, i64 %dtype)
  br i1 %padding, label %skip, label %compare
compare:
  %got = call double @element(ptr %out, i64 %at, i64 %dtype)
  %wanted = call double @element(ptr %expected, i64 %at, i64 %dtype)
  %got.nan = fcmp uno double %got, %got
  %wanted.nan = fcmp uno double %wanted, %wanted
  %both.nan = and i1 %got.nan, %wanted.nan
  %equal = fcmp oeq double %got, %wanted
  %same = or i1 %both.nan, %equal
  br i1 %same, label %same.double, label %differ
same.double:
  %differ.i64 = call i1 @differ_as_i64(ptr %out, ptr %expected, i64 %at, i64 %dtype)
  br i1 %differ.i64, label %differ, label %skip
skip:
  br label %next
differ:
  %difference = fsub double %got, %wanted
  %size = call double @llvm.fabs.f64(double %difference)
  %number = fcmp ord double %size, %size
  %size.or.infinity = select i1 %number, double %size, double 0x7FF0000000000000
  %one.at.least = fcmp olt double %size.or.infinity, 1.0
  %size.integer = select i1 %one.at.least, double 1.0, double %size.or.infinity
  %integers = icmp eq i64 %dtype, 4
  %error = select i1 %integers, double %size.integer, double %size.or.infinity
  %above = fcmp ogt double %error, %worst
  %worse = select i1 %above, double %error, double %worst
  br label %next
done:
  %relative = fdiv double %worst, %scale
  ret double %relative
}

declare double @llvm.fabs.f64(double)
