define i32 @sketch_split_threads_split_lanes(ptr %args, ptr %pool) nounwind "min-legal-vector-width"="256" "no-builtins" {
entry:
  %v1 = load ptr, ptr %args, align 8
  %v2 = getelementptr i8, ptr %args, i64 8
  %v3 = load ptr, ptr %v2, align 8
  %v4 = getelementptr i8, ptr %args, i64 16
  %v5 = load ptr, ptr %v4, align 8
  %v6 = getelementptr i8, ptr %args, i64 24
  %v7 = load ptr, ptr %v6, align 8
  %v8 = getelementptr i8, ptr %v7, i64 0
  %v9 = getelementptr i8, ptr %v7, i64 64
  %v10 = alloca [64 x i8], align 64 ; sketch_split_threads_split_lanes.body0
  %v13 = load ptr, ptr %pool, align 8
  %v11 = getelementptr i8, ptr %v10, i64 0
  store ptr %v1, ptr %v11, align 8
  %v12 = getelementptr i8, ptr %v10, i64 8
  store ptr %v8, ptr %v12, align 8
  call void %v13(ptr %pool, ptr @sketch_split_threads_split_lanes.body0, ptr %v10, i64 8)
  store float 0xFFF0000000000000, ptr %v9, align 4
  %v14 = load <8 x float>, ptr %v8, align 4
  %v15 = fcmp uno <8 x float> %v14, %v14
  %v16 = call i1 @llvm.vector.reduce.or.v8i1(<8 x i1> %v15)
  %v17 = call nnan float @llvm.vector.reduce.fmax.v8f32(<8 x float> %v14)
  %v18 = select i1 %v16, float 0x7FF8000000000000, float %v17
  %v19 = load float, ptr %v9, align 4
  %v20 = fcmp ogt float %v19, %v18
  %v21 = select i1 %v20, float %v19, float %v18
  %v22 = fcmp uno float %v19, %v19
  %v23 = select i1 %v22, float %v19, float %v21
  store float %v23, ptr %v9, align 4
  %v24 = load float, ptr %v9, align 4
  store float %v24, ptr %v3, align 4
  %v25 = load float, ptr %v3, align 4
  %v26 = fneg float %v25
  store float %v26, ptr %v5, align 4
  ret i32 0
}
define internal void @sketch_split_threads_split_lanes.body0(ptr %ctx, i64 %begin, i64 %end, i64 %worker) nounwind "min-legal-vector-width"="256" "no-builtins" {
entry:
  %v4 = alloca [64 x i8], align 64 ; reducemax_sum_parts_sum
  %v12 = getelementptr i8, ptr %ctx, i64 0
  %v13 = load ptr, ptr %v12, align 8
  %v122 = getelementptr i8, ptr %ctx, i64 8
  %v123 = load ptr, ptr %v122, align 8
  br label %loop1
loop1:
  %i.reducemax_sum_parts_r0_part.3 = phi i64 [ %begin, %entry ], [ %v126, %done6 ]
  %v14 = mul i64 %i.reducemax_sum_parts_r0_part.3, 50000
  %v15 = getelementptr i8, ptr %v13, i64 %v14
  %v124 = mul i64 %i.reducemax_sum_parts_r0_part.3, 4
  %v125 = getelementptr i8, ptr %v123, i64 %v124
  store float 0xFFF0000000000000, ptr %v4, align 4
  br label %loop5
loop5:
  %acc8 = phi <8 x float> [ splat (float 0xFFF0000000000000), %loop1 ], [ %v21, %loop5 ]
  %acc9 = phi <8 x float> [ splat (float 0xFFF0000000000000), %loop1 ], [ %v27, %loop5 ]
  %acc10 = phi <8 x float> [ splat (float 0xFFF0000000000000), %loop1 ], [ %v33, %loop5 ]
  %acc11 = phi <8 x float> [ splat (float 0xFFF0000000000000), %loop1 ], [ %v39, %loop5 ]
  %at16 = phi ptr [ %v15, %loop1 ], [ %v40, %loop5 ]
  %i.reducemax_sum_parts_sum_step.7 = phi i64 [ 0, %loop1 ], [ %v41, %loop5 ]
  %v17 = load <8 x float>, ptr %at16, align 4
  %v18 = fcmp ogt <8 x float> %acc8, %v17
  %v19 = select <8 x i1> %v18, <8 x float> %acc8, <8 x float> %v17
  %v20 = fcmp uno <8 x float> %acc8, %acc8
  %v21 = select <8 x i1> %v20, <8 x float> %acc8, <8 x float> %v19
  %v22 = getelementptr i8, ptr %at16, i64 32
  %v23 = load <8 x float>, ptr %v22, align 4
  %v24 = fcmp ogt <8 x float> %acc9, %v23
  %v25 = select <8 x i1> %v24, <8 x float> %acc9, <8 x float> %v23
  %v26 = fcmp uno <8 x float> %acc9, %acc9
  %v27 = select <8 x i1> %v26, <8 x float> %acc9, <8 x float> %v25
  %v28 = getelementptr i8, ptr %at16, i64 64
  %v29 = load <8 x float>, ptr %v28, align 4
  %v30 = fcmp ogt <8 x float> %acc10, %v29
  %v31 = select <8 x i1> %v30, <8 x float> %acc10, <8 x float> %v29
  %v32 = fcmp uno <8 x float> %acc10, %acc10
  %v33 = select <8 x i1> %v32, <8 x float> %acc10, <8 x float> %v31
  %v34 = getelementptr i8, ptr %at16, i64 96
  %v35 = load <8 x float>, ptr %v34, align 4
  %v36 = fcmp ogt <8 x float> %acc11, %v35
  %v37 = select <8 x i1> %v36, <8 x float> %acc11, <8 x float> %v35
  %v38 = fcmp uno <8 x float> %acc11, %acc11
  %v39 = select <8 x i1> %v38, <8 x float> %acc11, <8 x float> %v37
  %v40 = getelementptr i8, ptr %at16, i64 128
  %v41 = add nuw nsw i64 %i.reducemax_sum_parts_sum_step.7, 1
  %v42 = icmp slt i64 %v41, 390
  br i1 %v42, label %loop5, label %done6
done6:
  %v43 = getelementptr i8, ptr %v15, i64 49920
  %v44 = load <8 x float>, ptr %v43, align 4
  %v45 = fcmp ogt <8 x float> %v21, %v44
  %v46 = select <8 x i1> %v45, <8 x float> %v21, <8 x float> %v44
  %v47 = fcmp uno <8 x float> %v21, %v21
  %v48 = select <8 x i1> %v47, <8 x float> %v21, <8 x float> %v46
  %v49 = getelementptr i8, ptr %v15, i64 49952
  %v50 = load <8 x float>, ptr %v49, align 4
  %v51 = fcmp ogt <8 x float> %v27, %v50
  %v52 = select <8 x i1> %v51, <8 x float> %v27, <8 x float> %v50
  %v53 = fcmp uno <8 x float> %v27, %v27
  %v54 = select <8 x i1> %v53, <8 x float> %v27, <8 x float> %v52
  %v55 = extractelement <8 x float> %v33, i64 0
  %v56 = insertelement <4 x float> poison, float %v55, i64 0
  %v57 = extractelement <8 x float> %v33, i64 1
  %v58 = insertelement <4 x float> %v56, float %v57, i64 1
  %v59 = extractelement <8 x float> %v33, i64 2
  %v60 = insertelement <4 x float> %v58, float %v59, i64 2
  %v61 = extractelement <8 x float> %v33, i64 3
  %v62 = insertelement <4 x float> %v60, float %v61, i64 3
  %v63 = getelementptr i8, ptr %v15, i64 49984
  %v64 = load <4 x float>, ptr %v63, align 4
  %v65 = fcmp ogt <4 x float> %v62, %v64
  %v66 = select <4 x i1> %v65, <4 x float> %v62, <4 x float> %v64
  %v67 = fcmp uno <4 x float> %v62, %v62
  %v68 = select <4 x i1> %v67, <4 x float> %v62, <4 x float> %v66
  %v69 = extractelement <8 x float> %v33, i64 4
  %v70 = extractelement <8 x float> %v33, i64 5
  %v71 = extractelement <8 x float> %v33, i64 6
  %v72 = extractelement <8 x float> %v33, i64 7
  %v73 = fcmp uno <8 x float> %v48, %v48
  %v74 = call i1 @llvm.vector.reduce.or.v8i1(<8 x i1> %v73)
  %v75 = call nnan float @llvm.vector.reduce.fmax.v8f32(<8 x float> %v48)
  %v76 = select i1 %v74, float 0x7FF8000000000000, float %v75
  %v77 = load float, ptr %v4, align 4
  %v78 = fcmp ogt float %v77, %v76
  %v79 = select i1 %v78, float %v77, float %v76
  %v80 = fcmp uno float %v77, %v77
  %v81 = select i1 %v80, float %v77, float %v79
  store float %v81, ptr %v4, align 4
  %v82 = fcmp uno <8 x float> %v54, %v54
  %v83 = call i1 @llvm.vector.reduce.or.v8i1(<8 x i1> %v82)
  %v84 = call nnan float @llvm.vector.reduce.fmax.v8f32(<8 x float> %v54)
  %v85 = select i1 %v83, float 0x7FF8000000000000, float %v84
  %v86 = load float, ptr %v4, align 4
  %v87 = fcmp ogt float %v86, %v85
  %v88 = select i1 %v87, float %v86, float %v85
  %v89 = fcmp uno float %v86, %v86
  %v90 = select i1 %v89, float %v86, float %v88
  store float %v90, ptr %v4, align 4
  %v91 = extractelement <4 x float> %v68, i64 0
  %v92 = insertelement <8 x float> poison, float %v91, i64 0
  %v93 = extractelement <4 x float> %v68, i64 1
  %v94 = insertelement <8 x float> %v92, float %v93, i64 1
  %v95 = extractelement <4 x float> %v68, i64 2
  %v96 = insertelement <8 x float> %v94, float %v95, i64 2
  %v97 = extractelement <4 x float> %v68, i64 3
  %v98 = insertelement <8 x float> %v96, float %v97, i64 3
  %v99 = insertelement <8 x float> %v98, float %v69, i64 4
  %v100 = insertelement <8 x float> %v99, float %v70, i64 5
  %v101 = insertelement <8 x float> %v100, float %v71, i64 6
  %v102 = insertelement <8 x float> %v101, float %v72, i64 7
  %v103 = fcmp uno <8 x float> %v102, %v102
  %v104 = call i1 @llvm.vector.reduce.or.v8i1(<8 x i1> %v103)
  %v105 = call nnan float @llvm.vector.reduce.fmax.v8f32(<8 x float> %v102)
  %v106 = select i1 %v104, float 0x7FF8000000000000, float %v105
  %v107 = load float, ptr %v4, align 4
  %v108 = fcmp ogt float %v107, %v106
  %v109 = select i1 %v108, float %v107, float %v106
  %v110 = fcmp uno float %v107, %v107
  %v111 = select i1 %v110, float %v107, float %v109
  store float %v111, ptr %v4, align 4
  %v112 = fcmp uno <8 x float> %v39, %v39
  %v113 = call i1 @llvm.vector.reduce.or.v8i1(<8 x i1> %v112)
  %v114 = call nnan float @llvm.vector.reduce.fmax.v8f32(<8 x float> %v39)
  %v115 = select i1 %v113, float 0x7FF8000000000000, float %v114
  %v116 = load float, ptr %v4, align 4
  %v117 = fcmp ogt float %v116, %v115
  %v118 = select i1 %v117, float %v116, float %v115
  %v119 = fcmp uno float %v116, %v116
  %v120 = select i1 %v119, float %v116, float %v118
  store float %v120, ptr %v4, align 4
  %v121 = load float, ptr %v4, align 4
  store float %v121, ptr %v125, align 4
  %v126 = add nuw nsw i64 %i.reducemax_sum_parts_r0_part.3, 1
  %v127 = icmp slt i64 %v126, %end
  br i1 %v127, label %loop1, label %done2
done2:
  ret void
}
declare float @llvm.vector.reduce.fmax.v8f32(<8 x float>)
declare i1 @llvm.vector.reduce.or.v8i1(<8 x i1>)
