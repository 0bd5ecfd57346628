; before
  br label %loop12
loop12:
  %i1 = phi i64 [ 0, %entry ], [ %v10, %loop12 ]
  %v2 = udiv i64 %i1, 7
  %v3 = mul i64 %v2, 100
  %v4 = add i64 %v3, -3
  %v5 = getelementptr i8, ptr %source, i64 %v4
  %v6 = load i8, ptr %v5, align 1
  %v7 = getelementptr i8, ptr %target, i64 %i1
  store i8 %v6, ptr %v7, align 1
  %v8 = trunc i64 %v4 to i32
  store i32 %v8, ptr %target, align 4
  store i64 %v4, ptr %target, align 8
  %v9 = mul i64 %v4, 1073741824
  store i64 %v9, ptr %target, align 8
  %v10 = add i64 %i1, 1
  %v11 = icmp slt i64 %v10, 1000
  br i1 %v11, label %loop12, label %done13
done13:
; after
  br label %loop12
loop12:
  %i1 = phi i32 [ 0, %entry ], [ %v10, %loop12 ]
  %v2 = udiv i32 %i1, 7
  %v3 = mul i32 %v2, 100
  %v4 = add i32 %v3, -3
  %v5 = getelementptr i8, ptr %source, i32 %v4
  %v6 = load i8, ptr %v5, align 1
  %v7 = getelementptr i8, ptr %target, i32 %i1
  store i8 %v6, ptr %v7, align 1
  %v8 = bitcast i32 %v4 to i32
  store i32 %v8, ptr %target, align 4
  %v12 = sext i32 %v4 to i64
  store i64 %v12, ptr %target, align 8
  %v13 = sext i32 %v4 to i64
  %v9 = mul i64 %v13, 1073741824
  store i64 %v9, ptr %target, align 8
  %v10 = add i32 %i1, 1
  %v11 = icmp slt i32 %v10, 1000
  br i1 %v11, label %loop12, label %done13
done13:
