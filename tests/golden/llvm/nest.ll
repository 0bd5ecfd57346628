define i32 @nest(ptr %args, ptr %pool) nounwind "min-legal-vector-width"="256" "no-builtins" {
entry:
  %v1 = load ptr, ptr %args, align 8
  %v2 = getelementptr i8, ptr %args, i64 8
  %v3 = load ptr, ptr %v2, align 8
  %v4 = alloca [64 x i8], align 64 ; nest.body0
  %v7 = load ptr, ptr %pool, align 8
  %v5 = getelementptr i8, ptr %v4, i64 0
  store ptr %v1, ptr %v5, align 8
  %v6 = getelementptr i8, ptr %v4, i64 8
  store ptr %v3, ptr %v6, align 8
  call void %v7(ptr %pool, ptr @nest.body0, ptr %v4, i64 32)
  ret i32 0
}
define internal void @nest.body0(ptr %ctx, i64 %begin, i64 %end, i64 %worker) nounwind "min-legal-vector-width"="256" "no-builtins" {
entry:
  %v4 = alloca [256 x i8], align 64 ; made
  %v16 = getelementptr i8, ptr %ctx, i64 0
  %v17 = load ptr, ptr %v16, align 8
  %v25 = getelementptr i8, ptr %ctx, i64 8
  %v26 = load ptr, ptr %v25, align 8
  br label %loop1
loop1:
  %i.i_1.3 = phi i64 [ %begin, %entry ], [ %v80, %done13 ]
  %v18 = mul i64 %i.i_1.3, 256
  %v19 = getelementptr i8, ptr %v17, i64 %v18
  %v27 = getelementptr i8, ptr %v26, i64 %v18
  store <8 x float> splat (float 0x0000000000000000), ptr %v4, align 4
  %v5 = getelementptr i8, ptr %v4, i64 32
  store <8 x float> splat (float 0x0000000000000000), ptr %v5, align 4
  %v6 = getelementptr i8, ptr %v4, i64 64
  store <8 x float> splat (float 0x0000000000000000), ptr %v6, align 4
  %v7 = getelementptr i8, ptr %v4, i64 96
  store <8 x float> splat (float 0x0000000000000000), ptr %v7, align 4
  %v8 = getelementptr i8, ptr %v4, i64 128
  store <8 x float> splat (float 0x0000000000000000), ptr %v8, align 4
  %v9 = getelementptr i8, ptr %v4, i64 160
  store <8 x float> splat (float 0x0000000000000000), ptr %v9, align 4
  %v10 = getelementptr i8, ptr %v4, i64 192
  store <8 x float> splat (float 0x0000000000000000), ptr %v10, align 4
  %v11 = getelementptr i8, ptr %v4, i64 224
  store <8 x float> splat (float 0x0000000000000000), ptr %v11, align 4
  br label %loop12
loop12:
  %i.i_2.14 = phi i64 [ 0, %loop1 ], [ %v78, %loop12 ]
  %v20 = mul i64 %i.i_2.14, 8192
  %v21 = getelementptr i8, ptr %v19, i64 %v20
  %v28 = getelementptr i8, ptr %v27, i64 %v20
  %v15 = load <8 x float>, ptr %v4, align 4
  %v22 = load <8 x float>, ptr %v21, align 4
  %v23 = fadd contract <8 x float> %v15, %v22
  store <8 x float> %v23, ptr %v4, align 4
  %v24 = load <8 x float>, ptr %v4, align 4
  store <8 x float> %v24, ptr %v28, align 4
  %v29 = getelementptr i8, ptr %v4, i64 32
  %v30 = load <8 x float>, ptr %v29, align 4
  %v31 = getelementptr i8, ptr %v21, i64 32
  %v32 = load <8 x float>, ptr %v31, align 4
  %v33 = fadd contract <8 x float> %v30, %v32
  store <8 x float> %v33, ptr %v29, align 4
  %v34 = load <8 x float>, ptr %v29, align 4
  %v35 = getelementptr i8, ptr %v28, i64 32
  store <8 x float> %v34, ptr %v35, align 4
  %v36 = getelementptr i8, ptr %v4, i64 64
  %v37 = load <8 x float>, ptr %v36, align 4
  %v38 = getelementptr i8, ptr %v21, i64 64
  %v39 = load <8 x float>, ptr %v38, align 4
  %v40 = fadd contract <8 x float> %v37, %v39
  store <8 x float> %v40, ptr %v36, align 4
  %v41 = load <8 x float>, ptr %v36, align 4
  %v42 = getelementptr i8, ptr %v28, i64 64
  store <8 x float> %v41, ptr %v42, align 4
  %v43 = getelementptr i8, ptr %v4, i64 96
  %v44 = load <8 x float>, ptr %v43, align 4
  %v45 = getelementptr i8, ptr %v21, i64 96
  %v46 = load <8 x float>, ptr %v45, align 4
  %v47 = fadd contract <8 x float> %v44, %v46
  store <8 x float> %v47, ptr %v43, align 4
  %v48 = load <8 x float>, ptr %v43, align 4
  %v49 = getelementptr i8, ptr %v28, i64 96
  store <8 x float> %v48, ptr %v49, align 4
  %v50 = getelementptr i8, ptr %v4, i64 128
  %v51 = load <8 x float>, ptr %v50, align 4
  %v52 = getelementptr i8, ptr %v21, i64 128
  %v53 = load <8 x float>, ptr %v52, align 4
  %v54 = fadd contract <8 x float> %v51, %v53
  store <8 x float> %v54, ptr %v50, align 4
  %v55 = load <8 x float>, ptr %v50, align 4
  %v56 = getelementptr i8, ptr %v28, i64 128
  store <8 x float> %v55, ptr %v56, align 4
  %v57 = getelementptr i8, ptr %v4, i64 160
  %v58 = load <8 x float>, ptr %v57, align 4
  %v59 = getelementptr i8, ptr %v21, i64 160
  %v60 = load <8 x float>, ptr %v59, align 4
  %v61 = fadd contract <8 x float> %v58, %v60
  store <8 x float> %v61, ptr %v57, align 4
  %v62 = load <8 x float>, ptr %v57, align 4
  %v63 = getelementptr i8, ptr %v28, i64 160
  store <8 x float> %v62, ptr %v63, align 4
  %v64 = getelementptr i8, ptr %v4, i64 192
  %v65 = load <8 x float>, ptr %v64, align 4
  %v66 = getelementptr i8, ptr %v21, i64 192
  %v67 = load <8 x float>, ptr %v66, align 4
  %v68 = fadd contract <8 x float> %v65, %v67
  store <8 x float> %v68, ptr %v64, align 4
  %v69 = load <8 x float>, ptr %v64, align 4
  %v70 = getelementptr i8, ptr %v28, i64 192
  store <8 x float> %v69, ptr %v70, align 4
  %v71 = getelementptr i8, ptr %v4, i64 224
  %v72 = load <8 x float>, ptr %v71, align 4
  %v73 = getelementptr i8, ptr %v21, i64 224
  %v74 = load <8 x float>, ptr %v73, align 4
  %v75 = fadd contract <8 x float> %v72, %v74
  store <8 x float> %v75, ptr %v71, align 4
  %v76 = load <8 x float>, ptr %v71, align 4
  %v77 = getelementptr i8, ptr %v28, i64 224
  store <8 x float> %v76, ptr %v77, align 4
  %v78 = add nuw nsw i64 %i.i_2.14, 1
  %v79 = icmp slt i64 %v78, 16
  br i1 %v79, label %loop12, label %done13
done13:
  %v80 = add nuw nsw i64 %i.i_1.3, 1
  %v81 = icmp slt i64 %v80, %end
  br i1 %v81, label %loop1, label %done2
done2:
  ret void
}
