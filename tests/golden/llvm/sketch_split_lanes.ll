define i32 @sketch_split_lanes(ptr %args, ptr %pool) nounwind "min-legal-vector-width"="256" "no-builtins" {
entry:
  %v1 = load ptr, ptr %args, align 8
  %v2 = getelementptr i8, ptr %args, i64 8
  %v3 = load ptr, ptr %v2, align 8
  %v4 = getelementptr i8, ptr %args, i64 16
  %v5 = load ptr, ptr %v4, align 8
  %v9 = alloca [64 x i8], align 64 ; reducemax_sum
  br label %loop6
loop6:
  %i.reducemax_i0.8 = phi i64 [ 0, %entry ], [ %v85, %done11 ]
  %v15 = mul i64 %i.reducemax_i0.8, 148
  %v16 = getelementptr i8, ptr %v1, i64 %v15
  %v83 = mul i64 %i.reducemax_i0.8, 4
  %v84 = getelementptr i8, ptr %v3, i64 %v83
  store float 0xFFF0000000000000, ptr %v9, align 4
  br label %loop10
loop10:
  %acc13 = phi <8 x float> [ splat (float 0xFFF0000000000000), %loop6 ], [ %v22, %loop10 ]
  %acc14 = phi <8 x float> [ splat (float 0xFFF0000000000000), %loop6 ], [ %v28, %loop10 ]
  %at17 = phi ptr [ %v16, %loop6 ], [ %v29, %loop10 ]
  %i.reducemax_sum_step.12 = phi i64 [ 0, %loop6 ], [ %v30, %loop10 ]
  %v18 = load <8 x float>, ptr %at17, align 4
  %v19 = fcmp ogt <8 x float> %acc13, %v18
  %v20 = select <8 x i1> %v19, <8 x float> %acc13, <8 x float> %v18
  %v21 = fcmp uno <8 x float> %acc13, %acc13
  %v22 = select <8 x i1> %v21, <8 x float> %acc13, <8 x float> %v20
  %v23 = getelementptr i8, ptr %at17, i64 32
  %v24 = load <8 x float>, ptr %v23, align 4
  %v25 = fcmp ogt <8 x float> %acc14, %v24
  %v26 = select <8 x i1> %v25, <8 x float> %acc14, <8 x float> %v24
  %v27 = fcmp uno <8 x float> %acc14, %acc14
  %v28 = select <8 x i1> %v27, <8 x float> %acc14, <8 x float> %v26
  %v29 = getelementptr i8, ptr %at17, i64 64
  %v30 = add nuw nsw i64 %i.reducemax_sum_step.12, 1
  %v31 = icmp slt i64 %v30, 2
  br i1 %v31, label %loop10, label %done11
done11:
  %v32 = extractelement <8 x float> %v22, i64 0
  %v33 = insertelement <8 x float> poison, float %v32, i64 0
  %v34 = extractelement <8 x float> %v22, i64 1
  %v35 = insertelement <8 x float> %v33, float %v34, i64 1
  %v36 = extractelement <8 x float> %v22, i64 2
  %v37 = insertelement <8 x float> %v35, float %v36, i64 2
  %v38 = extractelement <8 x float> %v22, i64 3
  %v39 = insertelement <8 x float> %v37, float %v38, i64 3
  %v40 = extractelement <8 x float> %v22, i64 4
  %v41 = insertelement <8 x float> %v39, float %v40, i64 4
  %v42 = getelementptr i8, ptr %v16, i64 128
  %v43 = call <8 x float> @llvm.masked.load.v8f32.p0(ptr align 4 %v42, <8 x i1> <i1 true, i1 true, i1 true, i1 true, i1 true, i1 false, i1 false, i1 false>, <8 x float> zeroinitializer)
  %v44 = fcmp ogt <8 x float> %v41, %v43
  %v45 = select <8 x i1> %v44, <8 x float> %v41, <8 x float> %v43
  %v46 = fcmp uno <8 x float> %v41, %v41
  %v47 = select <8 x i1> %v46, <8 x float> %v41, <8 x float> %v45
  %v48 = extractelement <8 x float> %v22, i64 5
  %v49 = extractelement <8 x float> %v22, i64 6
  %v50 = extractelement <8 x float> %v22, i64 7
  %v51 = extractelement <8 x float> %v47, i64 0
  %v52 = insertelement <8 x float> poison, float %v51, i64 0
  %v53 = extractelement <8 x float> %v47, i64 1
  %v54 = insertelement <8 x float> %v52, float %v53, i64 1
  %v55 = extractelement <8 x float> %v47, i64 2
  %v56 = insertelement <8 x float> %v54, float %v55, i64 2
  %v57 = extractelement <8 x float> %v47, i64 3
  %v58 = insertelement <8 x float> %v56, float %v57, i64 3
  %v59 = extractelement <8 x float> %v47, i64 4
  %v60 = insertelement <8 x float> %v58, float %v59, i64 4
  %v61 = insertelement <8 x float> %v60, float %v48, i64 5
  %v62 = insertelement <8 x float> %v61, float %v49, i64 6
  %v63 = insertelement <8 x float> %v62, float %v50, i64 7
  %v64 = fcmp uno <8 x float> %v63, %v63
  %v65 = call i1 @llvm.vector.reduce.or.v8i1(<8 x i1> %v64)
  %v66 = call nnan float @llvm.vector.reduce.fmax.v8f32(<8 x float> %v63)
  %v67 = select i1 %v65, float 0x7FF8000000000000, float %v66
  %v68 = load float, ptr %v9, align 4
  %v69 = fcmp ogt float %v68, %v67
  %v70 = select i1 %v69, float %v68, float %v67
  %v71 = fcmp uno float %v68, %v68
  %v72 = select i1 %v71, float %v68, float %v70
  store float %v72, ptr %v9, align 4
  %v73 = fcmp uno <8 x float> %v28, %v28
  %v74 = call i1 @llvm.vector.reduce.or.v8i1(<8 x i1> %v73)
  %v75 = call nnan float @llvm.vector.reduce.fmax.v8f32(<8 x float> %v28)
  %v76 = select i1 %v74, float 0x7FF8000000000000, float %v75
  %v77 = load float, ptr %v9, align 4
  %v78 = fcmp ogt float %v77, %v76
  %v79 = select i1 %v78, float %v77, float %v76
  %v80 = fcmp uno float %v77, %v77
  %v81 = select i1 %v80, float %v77, float %v79
  store float %v81, ptr %v9, align 4
  %v82 = load float, ptr %v9, align 4
  store float %v82, ptr %v84, align 4
  %v85 = add nuw nsw i64 %i.reducemax_i0.8, 1
  %v86 = icmp slt i64 %v85, 3
  br i1 %v86, label %loop6, label %done7
done7:
  %v87 = call <4 x float> @llvm.masked.load.v4f32.p0(ptr align 4 %v3, <4 x i1> <i1 true, i1 true, i1 true, i1 false>, <4 x float> zeroinitializer)
  %v88 = fneg <4 x float> %v87
  call void @llvm.masked.store.v4f32.p0(<4 x float> %v88, ptr align 4 %v5, <4 x i1> <i1 true, i1 true, i1 true, i1 false>)
  ret i32 0
}
declare <4 x float> @llvm.masked.load.v4f32.p0(ptr, <4 x i1>, <4 x float>)
declare <8 x float> @llvm.masked.load.v8f32.p0(ptr, <8 x i1>, <8 x float>)
declare float @llvm.vector.reduce.fmax.v8f32(<8 x float>)
declare i1 @llvm.vector.reduce.or.v8i1(<8 x i1>)
declare void @llvm.masked.store.v4f32.p0(<4 x float>, ptr, <4 x i1>)
