; before
  br label %loop30
loop30:
  %total2 = phi <4 x float> [ splat (float 0x0000000000000000), %entry ], [ %v26, %loop30 ]
  %at1 = phi ptr [ %image, %entry ], [ %v27, %loop30 ]
  %v3 = getelementptr i8, ptr %at1, i64 0
  %v4 = load <4 x float>, ptr %v3, align 4
  %v5 = fadd <4 x float> %total2, %v4
  %v6 = getelementptr i8, ptr %at1, i64 3136
  %v7 = load <4 x float>, ptr %v6, align 4
  %v8 = fadd <4 x float> %v5, %v7
  %v9 = getelementptr i8, ptr %at1, i64 16
  %v10 = load <4 x float>, ptr %v9, align 4
  %v11 = fadd <4 x float> %v8, %v10
  %v12 = getelementptr i8, ptr %at1, i64 3152
  %v13 = load <4 x float>, ptr %v12, align 4
  %v14 = fadd <4 x float> %v11, %v13
  %v15 = getelementptr i8, ptr %at1, i64 32
  %v16 = load <4 x float>, ptr %v15, align 4
  %v17 = fadd <4 x float> %v14, %v16
  %v18 = getelementptr i8, ptr %at1, i64 3168
  %v19 = load <4 x float>, ptr %v18, align 4
  %v20 = fadd <4 x float> %v17, %v19
  %v21 = getelementptr i8, ptr %at1, i64 48
  %v22 = load <4 x float>, ptr %v21, align 4
  %v23 = fadd <4 x float> %v20, %v22
  %v24 = getelementptr i8, ptr %at1, i64 3184
  %v25 = load <4 x float>, ptr %v24, align 4
  %v26 = fadd <4 x float> %v23, %v25
  %v27 = getelementptr i8, ptr %at1, i64 64
  %v28 = load i64, ptr %v27, align 8
  %v29 = icmp slt i64 %v28, 1048576
  br i1 %v29, label %loop30, label %done31
done31:
; after
  br label %loop30
loop30:
  %total2 = phi <4 x float> [ splat (float 0x0000000000000000), %entry ], [ %v26, %loop30 ]
  %at1 = phi ptr [ %image, %entry ], [ %v27, %loop30 ]
  %v3 = getelementptr i8, ptr %at1, i64 0
  %v4 = load <4 x float>, ptr %v3, align 4
  %v5 = fadd <4 x float> %total2, %v4
  %v30 = getelementptr i8, ptr %at1, i64 3136
  %v31 = call ptr asm "", "=r,0"(ptr %v30)
  %v6 = getelementptr i8, ptr %v31, i64 0
  %v7 = load <4 x float>, ptr %v6, align 4
  %v8 = fadd <4 x float> %v5, %v7
  %v9 = getelementptr i8, ptr %at1, i64 16
  %v10 = load <4 x float>, ptr %v9, align 4
  %v11 = fadd <4 x float> %v8, %v10
  %v12 = getelementptr i8, ptr %v31, i64 16
  %v13 = load <4 x float>, ptr %v12, align 4
  %v14 = fadd <4 x float> %v11, %v13
  %v15 = getelementptr i8, ptr %at1, i64 32
  %v16 = load <4 x float>, ptr %v15, align 4
  %v17 = fadd <4 x float> %v14, %v16
  %v18 = getelementptr i8, ptr %v31, i64 32
  %v19 = load <4 x float>, ptr %v18, align 4
  %v20 = fadd <4 x float> %v17, %v19
  %v21 = getelementptr i8, ptr %at1, i64 48
  %v22 = load <4 x float>, ptr %v21, align 4
  %v23 = fadd <4 x float> %v20, %v22
  %v24 = getelementptr i8, ptr %v31, i64 48
  %v25 = load <4 x float>, ptr %v24, align 4
  %v26 = fadd <4 x float> %v23, %v25
  %v27 = getelementptr i8, ptr %at1, i64 64
  %v28 = load i64, ptr %v27, align 8
  %v29 = icmp slt i64 %v28, 1048576
  br i1 %v29, label %loop30, label %done31
done31:
