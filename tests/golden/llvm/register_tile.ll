define i32 @register_tile(ptr %args, ptr %pool) nounwind "min-legal-vector-width"="256" "no-builtins" {
entry:
  %v1 = load ptr, ptr %args, align 8
  %v2 = getelementptr i8, ptr %args, i64 8
  %v3 = load ptr, ptr %v2, align 8
  %v4 = getelementptr i8, ptr %args, i64 16
  %v5 = load ptr, ptr %v4, align 8
  %v6 = getelementptr i8, ptr %args, i64 24
  %v7 = load ptr, ptr %v6, align 8
  %v8 = alloca [64 x i8], align 64 ; register_tile.body0
  %v13 = load ptr, ptr %pool, align 8
  %v9 = getelementptr i8, ptr %v8, i64 0
  store ptr %v1, ptr %v9, align 8
  %v10 = getelementptr i8, ptr %v8, i64 8
  store ptr %v3, ptr %v10, align 8
  %v11 = getelementptr i8, ptr %v8, i64 16
  store ptr %v5, ptr %v11, align 8
  %v12 = getelementptr i8, ptr %v8, i64 24
  store ptr %v7, ptr %v12, align 8
  call void %v13(ptr %pool, ptr @register_tile.body0, ptr %v8, i64 6)
  ret i32 0
}
define internal void @register_tile.body0(ptr %ctx, i64 %begin, i64 %end, i64 %worker) nounwind "min-legal-vector-width"="256" "no-builtins" {
entry:
  %v9 = getelementptr i8, ptr %ctx, i64 0
  %v10 = load ptr, ptr %v9, align 8
  %v15 = getelementptr i8, ptr %ctx, i64 8
  %v16 = load ptr, ptr %v15, align 8
  %v52 = getelementptr i8, ptr %ctx, i64 16
  %v53 = load ptr, ptr %v52, align 8
  %v60 = getelementptr i8, ptr %ctx, i64 24
  %v61 = load ptr, ptr %v60, align 8
  br label %loop1
loop1:
  %i.row_panel.3 = phi i64 [ %begin, %entry ], [ %v94, %after7 ]
  %v4 = udiv i64 %i.row_panel.3, 2
  %v11 = mul i64 %v4, 24
  %v12 = getelementptr i8, ptr %v10, i64 %v11
  %v14 = urem i64 %i.row_panel.3, 2
  %v17 = mul i64 %v14, 96
  %v18 = getelementptr i8, ptr %v16, i64 %v17
  %v54 = mul i64 %v14, 32
  %v55 = getelementptr i8, ptr %v53, i64 %v54
  %v62 = getelementptr i8, ptr %v61, i64 %v54
  %v63 = mul i64 %v4, 128
  %v64 = getelementptr i8, ptr %v62, i64 %v63
  %v5 = icmp slt i64 %v4, 2
  br i1 %v5, label %then6, label %else8
then6:
  %v13 = load float, ptr %v12, align 4
  %v19 = load <8 x float>, ptr %v18, align 4
  %v20 = insertelement <8 x float> poison, float %v13, i64 0
  %v21 = shufflevector <8 x float> %v20, <8 x float> poison, <8 x i32> zeroinitializer
  %v22 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v21, <8 x float> %v19, <8 x float> splat (float 0x0000000000000000))
  %v23 = getelementptr i8, ptr %v12, i64 12
  %v24 = load float, ptr %v23, align 4
  %v25 = insertelement <8 x float> poison, float %v24, i64 0
  %v26 = shufflevector <8 x float> %v25, <8 x float> poison, <8 x i32> zeroinitializer
  %v27 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v26, <8 x float> %v19, <8 x float> splat (float 0x0000000000000000))
  %v28 = getelementptr i8, ptr %v12, i64 4
  %v29 = load float, ptr %v28, align 4
  %v30 = getelementptr i8, ptr %v18, i64 32
  %v31 = load <8 x float>, ptr %v30, align 4
  %v32 = insertelement <8 x float> poison, float %v29, i64 0
  %v33 = shufflevector <8 x float> %v32, <8 x float> poison, <8 x i32> zeroinitializer
  %v34 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v33, <8 x float> %v31, <8 x float> %v22)
  %v35 = getelementptr i8, ptr %v12, i64 16
  %v36 = load float, ptr %v35, align 4
  %v37 = insertelement <8 x float> poison, float %v36, i64 0
  %v38 = shufflevector <8 x float> %v37, <8 x float> poison, <8 x i32> zeroinitializer
  %v39 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v38, <8 x float> %v31, <8 x float> %v27)
  %v40 = getelementptr i8, ptr %v12, i64 8
  %v41 = load float, ptr %v40, align 4
  %v42 = getelementptr i8, ptr %v18, i64 64
  %v43 = load <8 x float>, ptr %v42, align 4
  %v44 = insertelement <8 x float> poison, float %v41, i64 0
  %v45 = shufflevector <8 x float> %v44, <8 x float> poison, <8 x i32> zeroinitializer
  %v46 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v45, <8 x float> %v43, <8 x float> %v34)
  %v47 = getelementptr i8, ptr %v12, i64 20
  %v48 = load float, ptr %v47, align 4
  %v49 = insertelement <8 x float> poison, float %v48, i64 0
  %v50 = shufflevector <8 x float> %v49, <8 x float> poison, <8 x i32> zeroinitializer
  %v51 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v50, <8 x float> %v43, <8 x float> %v39)
  %v56 = load <8 x float>, ptr %v55, align 4
  %v57 = fadd contract <8 x float> %v46, %v56
  %v58 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %v57
  %v59 = select <8 x i1> %v58, <8 x float> splat (float 0x0000000000000000), <8 x float> %v57
  store <8 x float> %v59, ptr %v64, align 4
  %v65 = fadd contract <8 x float> %v51, %v56
  %v66 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %v65
  %v67 = select <8 x i1> %v66, <8 x float> splat (float 0x0000000000000000), <8 x float> %v65
  %v68 = getelementptr i8, ptr %v64, i64 64
  store <8 x float> %v67, ptr %v68, align 4
  br label %after7
else8:
  %v69 = getelementptr i8, ptr %v10, i64 48
  %v70 = load float, ptr %v69, align 4
  %v71 = load <8 x float>, ptr %v18, align 4
  %v72 = insertelement <8 x float> poison, float %v70, i64 0
  %v73 = shufflevector <8 x float> %v72, <8 x float> poison, <8 x i32> zeroinitializer
  %v74 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v73, <8 x float> %v71, <8 x float> splat (float 0x0000000000000000))
  %v75 = getelementptr i8, ptr %v10, i64 52
  %v76 = load float, ptr %v75, align 4
  %v77 = getelementptr i8, ptr %v18, i64 32
  %v78 = load <8 x float>, ptr %v77, align 4
  %v79 = insertelement <8 x float> poison, float %v76, i64 0
  %v80 = shufflevector <8 x float> %v79, <8 x float> poison, <8 x i32> zeroinitializer
  %v81 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v80, <8 x float> %v78, <8 x float> %v74)
  %v82 = getelementptr i8, ptr %v10, i64 56
  %v83 = load float, ptr %v82, align 4
  %v84 = getelementptr i8, ptr %v18, i64 64
  %v85 = load <8 x float>, ptr %v84, align 4
  %v86 = insertelement <8 x float> poison, float %v83, i64 0
  %v87 = shufflevector <8 x float> %v86, <8 x float> poison, <8 x i32> zeroinitializer
  %v88 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v87, <8 x float> %v85, <8 x float> %v81)
  %v89 = load <8 x float>, ptr %v55, align 4
  %v90 = fadd contract <8 x float> %v88, %v89
  %v91 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %v90
  %v92 = select <8 x i1> %v91, <8 x float> splat (float 0x0000000000000000), <8 x float> %v90
  %v93 = getelementptr i8, ptr %v62, i64 256
  store <8 x float> %v92, ptr %v93, align 4
  br label %after7
after7:
  %v94 = add nuw nsw i64 %i.row_panel.3, 1
  %v95 = icmp slt i64 %v94, %end
  br i1 %v95, label %loop1, label %done2
done2:
  ret void
}
declare <8 x float> @llvm.fmuladd.v8f32(<8 x float>, <8 x float>, <8 x float>)
