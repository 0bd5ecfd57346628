; The difference between an output and the expected values. `@element` and `@bits` are generated
; (elements.py).

; Returns true if an element of `expected` is padding of its blocked layout, whose value is
; arbitrary: if its bits equal `mark` - 1. A mark of 0 means that there is no padding.
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

; Returns true if two i64 (dtype 4) or u64 (dtype 7) differ even if they are equal as doubles.
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

; Returns the largest finite absolute value of the elements from `first` on; at least `least`.
define internal double @largest_finite(ptr %expected, i64 %first, i64 %count, i64 %dtype, i64 %mark, double %least) nounwind {
entry:
  br label %next
next:
  %at = phi i64 [ %first, %entry ], [ %at.next, %skip ], [ %at.next, %look ]
  %largest = phi double [ %least, %entry ], [ %largest, %skip ], [ %larger, %look ]
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

; Returns, for the f32 that fill whole vectors, their number, max |out - expected| and max
; |expected|. All three are 0 if one of the values is not finite.
define internal { i64, double, double } @of_vectors(ptr %out, ptr %expected, i64 %count) nounwind {
entry:
  %whole = and i64 %count, -8
  br label %next
next:
  %at = phi i64 [ 0, %entry ], [ %at.next, %look ]
  %worst = phi <8 x double> [ zeroinitializer, %entry ], [ %worse, %look ]
  %largest = phi <8 x double> [ zeroinitializer, %entry ], [ %larger, %look ]
  %total = phi <8 x double> [ zeroinitializer, %entry ], [ %total.next, %look ]
  %more = icmp slt i64 %at, %whole
  br i1 %more, label %look, label %done
look:
  %at.next = add i64 %at, 8
  %got.at = getelementptr float, ptr %out, i64 %at
  %wanted.at = getelementptr float, ptr %expected, i64 %at
  %got.f32 = load <8 x float>, ptr %got.at, align 4
  %wanted.f32 = load <8 x float>, ptr %wanted.at, align 4
  %got = fpext <8 x float> %got.f32 to <8 x double>
  %wanted = fpext <8 x float> %wanted.f32 to <8 x double>
  %difference = fsub <8 x double> %got, %wanted
  %error = call <8 x double> @llvm.fabs.v8f64(<8 x double> %difference)
  %size = call <8 x double> @llvm.fabs.v8f64(<8 x double> %wanted)
  %total.next = fadd <8 x double> %total, %error
  %above = fcmp ogt <8 x double> %error, %worst
  %worse = select <8 x i1> %above, <8 x double> %error, <8 x double> %worst
  %longer = fcmp ogt <8 x double> %size, %largest
  %larger = select <8 x i1> %longer, <8 x double> %size, <8 x double> %largest
  br label %next
done:
  %sum = call double @llvm.vector.reduce.fadd.v8f64(double 0.0, <8 x double> %total)
  %finite = fcmp olt double %sum, 0x7FF0000000000000
  %max.worst = call double @llvm.vector.reduce.fmax.v8f64(<8 x double> %worst)
  %max.largest = call double @llvm.vector.reduce.fmax.v8f64(<8 x double> %largest)
  %with.count = insertvalue { i64, double, double } zeroinitializer, i64 %whole, 0
  %with.worst = insertvalue { i64, double, double } %with.count, double %max.worst, 1
  %with.both = insertvalue { i64, double, double } %with.worst, double %max.largest, 2
  %result = select i1 %finite, { i64, double, double } %with.both, { i64, double, double } zeroinitializer
  ret { i64, double, double } %result
}

; Returns max |out - expected| / max |expected|, where the latter is at least the smallest normal
; f32. NaN equals NaN, and an infinity equals itself; any other non-finite difference counts as
; infinite. The bits of `marked.dtype` above the lowest 8 are the mark of padding.
define double @farrier_max_error(ptr %out, ptr %expected, i64 %count, i64 %marked.dtype) nounwind {
entry:
  %dtype = and i64 %marked.dtype, 255
  %mark = lshr i64 %marked.dtype, 8
  %plain.f32 = icmp eq i64 %marked.dtype, 0
  br i1 %plain.f32, label %vectors, label %rest
vectors:
  %of.vectors = call { i64, double, double } @of_vectors(ptr %out, ptr %expected, i64 %count)
  %done.count = extractvalue { i64, double, double } %of.vectors, 0
  %done.worst = extractvalue { i64, double, double } %of.vectors, 1
  %done.largest = extractvalue { i64, double, double } %of.vectors, 2
  %done.above = fcmp ogt double %done.largest, 0x3810000000000000
  %done.least = select i1 %done.above, double %done.largest, double 0x3810000000000000
  br label %rest
rest:
  %first = phi i64 [ 0, %entry ], [ %done.count, %vectors ]
  %so.far = phi double [ 0.0, %entry ], [ %done.worst, %vectors ]
  %least = phi double [ 0x3810000000000000, %entry ], [ %done.least, %vectors ]
  %scale = call double @largest_finite(ptr %expected, i64 %first, i64 %count, i64 %dtype, i64 %mark, double %least)
  br label %next
next:
  %at = phi i64 [ %first, %rest ], [ %at.next, %skip ], [ %at.next, %differ ]
  %worst = phi double [ %so.far, %rest ], [ %worst, %skip ], [ %worse, %differ ]
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
declare <8 x double> @llvm.fabs.v8f64(<8 x double>)
declare double @llvm.vector.reduce.fadd.v8f64(double, <8 x double>)
declare double @llvm.vector.reduce.fmax.v8f64(<8 x double>)
