; How far an output is from what is expected. `@element` and `@bits` are generated (elements.py).

; Whether an element of `expected` fills up a block of its layout, which may hold anything: its bits
; are the mark less one. A mark of 0 is none.
define internal i1 @is_padding(ptr %expected, i64 %at, i64 %dtype, i64 %mark) nounwind {
entry:
  %none = icmp eq i64 %mark, 0
  br i1 %none, label %no, label %look
look:
  %bits = call i64 @bits(ptr %expected, i64 %at, i64 %dtype)
  %above = add i64 %bits, 1
  %marked = icmp eq i64 %above, %mark
  ret i1 %marked
no:
  ret i1 false
}

; Whether two i64 (dtype 4) or u64 (7) differ although their doubles are equal.
define internal i1 @differ_as_i64(ptr %left, ptr %right, i64 %at, i64 %dtype) nounwind {
entry:
  %signed = icmp eq i64 %dtype, 4
  %unsigned = icmp eq i64 %dtype, 7
  %integer = or i1 %signed, %unsigned
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

define internal double @largest_finite(ptr %expected, i64 %count, i64 %dtype, i64 %mark) nounwind {
entry:
  br label %next
next:
  %at = phi i64 [ 0, %entry ], [ %at.next, %skip ], [ %at.next, %look ]
  %largest = phi double [ 0x3810000000000000, %entry ], [ %largest, %skip ], [ %larger, %look ]
  %at.next = add i64 %at, 1
  %more = icmp slt i64 %at, %count
  br i1 %more, label %test, label %done
test:
  %padding = call i1 @is_padding(ptr %expected, i64 %at, i64 %dtype, i64 %mark)
  br i1 %padding, label %skip, label %look
skip:
  br label %next
look:
  %value = call double @element(ptr %expected, i64 %at, i64 %dtype)
  %size = call double @llvm.fabs.f64(double %value)
  %above = fcmp ogt double %size, %largest
  %finite = fcmp olt double %size, 0x7FF0000000000000
  %take = and i1 %above, %finite
  %larger = select i1 %take, double %size, double %largest
  br label %next
done:
  ret double %largest
}

; max |out - expected| / max |expected|, the latter at least the smallest normal f32. NaN equals NaN,
; an infinity equals itself; any other non-finite difference is infinite. Above the dtype's 8 bits
; is the mark of padding.
define double @farrier_max_error(ptr %out, ptr %expected, i64 %count, i64 %marked.dtype) nounwind {
entry:
  %dtype = and i64 %marked.dtype, 255
  %mark = lshr i64 %marked.dtype, 8
  %scale = call double @largest_finite(ptr %expected, i64 %count, i64 %dtype, i64 %mark)
  br label %next
next:
  %at = phi i64 [ 0, %entry ], [ %at.next, %skip ], [ %at.next, %differ ]
  %worst = phi double [ 0.0, %entry ], [ %worst, %skip ], [ %worse, %differ ]
  %at.next = add i64 %at, 1
  %more = icmp slt i64 %at, %count
  br i1 %more, label %look, label %done
look:
  %padding = call i1 @is_padding(ptr %expected, i64 %at, i64 %dtype, i64 %mark)
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
  %signed = icmp eq i64 %dtype, 4
  %unsigned = icmp eq i64 %dtype, 7
  %integers = or i1 %signed, %unsigned
  %error = select i1 %integers, double %size.integer, double %size.or.infinity
  %above = fcmp ogt double %error, %worst
  %worse = select i1 %above, double %error, double %worst
  br label %next
done:
  %relative = fdiv double %worst, %scale
  ret double %relative
}

declare double @llvm.fabs.f64(double)
