define i32 @sketch_fuse_sums_split_lanes(ptr %args, ptr %pool) nounwind "min-legal-vector-width"="256" "no-builtins" {
entry:
  %v1 = load ptr, ptr %args, align 8
  %v2 = getelementptr i8, ptr %args, i64 8
  %v3 = load ptr, ptr %v2, align 8
  %v4 = getelementptr i8, ptr %args, i64 16
  %v5 = load ptr, ptr %v4, align 8
  %v9 = alloca [64 x i8], align 64 ; max
  %v61 = alloca [64 x i8], align 64 ; argmax_sum
  br label %loop6
loop6:
  %i.argmax_i0.8 = phi i64 [ 0, %entry ], [ %v105, %done63 ]
  %v14 = mul i64 %i.argmax_i0.8, 84
  %v15 = getelementptr i8, ptr %v1, i64 %v14
  %v103 = mul i64 %i.argmax_i0.8, 8
  %v104 = getelementptr i8, ptr %v3, i64 %v103
  store float 0xFFF0000000000000, ptr %v9, align 4
  br label %loop10
loop10:
  %acc13 = phi <4 x float> [ splat (float 0xFFF0000000000000), %loop6 ], [ %v30, %loop10 ]
  %at16 = phi ptr [ %v15, %loop6 ], [ %v31, %loop10 ]
  %i.max_step.12 = phi i64 [ 0, %loop6 ], [ %v32, %loop10 ]
  %v19 = mul i64 %i.max_step.12, 4
  %v17 = load <4 x float>, ptr %at16, align 4
  %v18 = fcmp oeq <4 x float> %v17, %v17
  %v20 = insertelement <4 x i64> poison, i64 %v19, i64 0
  %v21 = shufflevector <4 x i64> %v20, <4 x i64> poison, <4 x i32> zeroinitializer
  %v22 = add <4 x i64> %v21, <i64 0, i64 1, i64 2, i64 3>
  %v23 = icmp eq <4 x i64> %v22, splat (i64 0)
  %v24 = or <4 x i1> %v18, %v23
  %v25 = call <4 x float> @llvm.masked.load.v4f32.p0(ptr align 4 %at16, <4 x i1> %v24, <4 x float> zeroinitializer)
  %v26 = select <4 x i1> %v24, <4 x float> %v25, <4 x float> splat (float 0xFFF0000000000000)
  %v27 = fcmp ogt <4 x float> %acc13, %v26
  %v28 = select <4 x i1> %v27, <4 x float> %acc13, <4 x float> %v26
  %v29 = fcmp uno <4 x float> %acc13, %acc13
  %v30 = select <4 x i1> %v29, <4 x float> %acc13, <4 x float> %v28
  %v31 = getelementptr i8, ptr %at16, i64 16
  %v32 = add nuw nsw i64 %i.max_step.12, 1
  %v33 = icmp slt i64 %v32, 5
  br i1 %v33, label %loop10, label %done11
done11:
  %v34 = extractelement <4 x float> %v30, i64 0
  %v35 = getelementptr i8, ptr %v15, i64 80
  %v36 = load float, ptr %v35, align 4
  %v37 = fcmp oeq float %v36, %v36
  %v38 = select i1 %v37, ptr %v35, ptr %v1
  %v39 = load float, ptr %v38, align 4
  %v40 = select i1 %v37, float %v39, float 0xFFF0000000000000
  %v41 = fcmp ogt float %v34, %v40
  %v42 = select i1 %v41, float %v34, float %v40
  %v43 = fcmp uno float %v34, %v34
  %v44 = select i1 %v43, float %v34, float %v42
  %v45 = extractelement <4 x float> %v30, i64 1
  %v46 = extractelement <4 x float> %v30, i64 2
  %v47 = extractelement <4 x float> %v30, i64 3
  %v48 = insertelement <4 x float> poison, float %v44, i64 0
  %v49 = insertelement <4 x float> %v48, float %v45, i64 1
  %v50 = insertelement <4 x float> %v49, float %v46, i64 2
  %v51 = insertelement <4 x float> %v50, float %v47, i64 3
  %v52 = fcmp uno <4 x float> %v51, %v51
  %v53 = call i1 @llvm.vector.reduce.or.v4i1(<4 x i1> %v52)
  %v54 = call nnan float @llvm.vector.reduce.fmax.v4f32(<4 x float> %v51)
  %v55 = select i1 %v53, float 0x7FF8000000000000, float %v54
  %v56 = load float, ptr %v9, align 4
  %v57 = fcmp ogt float %v56, %v55
  %v58 = select i1 %v57, float %v56, float %v55
  %v59 = fcmp uno float %v56, %v56
  %v60 = select i1 %v59, float %v56, float %v58
  store float %v60, ptr %v9, align 4
  store i64 9223372036854775807, ptr %v61, align 8
  br label %loop62
loop62:
  %acc65 = phi <4 x i64> [ splat (i64 9223372036854775807), %done11 ], [ %v81, %loop62 ]
  %at66 = phi ptr [ %v15, %done11 ], [ %v82, %loop62 ]
  %i.argmax_sum_step.64 = phi i64 [ 0, %done11 ], [ %v83, %loop62 ]
  %v73 = mul i64 %i.argmax_sum_step.64, 4
  %v67 = load <4 x float>, ptr %at66, align 4
  %v68 = load float, ptr %v9, align 4
  %v69 = insertelement <4 x float> poison, float %v68, i64 0
  %v70 = shufflevector <4 x float> %v69, <4 x float> poison, <4 x i32> zeroinitializer
  %v71 = fcmp oeq <4 x float> %v67, %v70
  %v72 = fcmp une <4 x float> %v67, %v67
  %v74 = insertelement <4 x i64> poison, i64 %v73, i64 0
  %v75 = shufflevector <4 x i64> %v74, <4 x i64> poison, <4 x i32> zeroinitializer
  %v76 = add <4 x i64> %v75, <i64 0, i64 1, i64 2, i64 3>
  %v77 = icmp eq <4 x i64> %v76, splat (i64 0)
  %v78 = and <4 x i1> %v72, %v77
  %v79 = or <4 x i1> %v71, %v78
  %v80 = select <4 x i1> %v79, <4 x i64> %v76, <4 x i64> splat (i64 21)
  %v81 = call <4 x i64> @llvm.smin.v4i64(<4 x i64> %acc65, <4 x i64> %v80)
  %v82 = getelementptr i8, ptr %at66, i64 16
  %v83 = add nuw nsw i64 %i.argmax_sum_step.64, 1
  %v84 = icmp slt i64 %v83, 5
  br i1 %v84, label %loop62, label %done63
done63:
  %v85 = extractelement <4 x i64> %v81, i64 0
  %v86 = getelementptr i8, ptr %v15, i64 80
  %v87 = load float, ptr %v86, align 4
  %v88 = load float, ptr %v9, align 4
  %v89 = fcmp oeq float %v87, %v88
  %v90 = select i1 %v89, i64 20, i64 21
  %v91 = call i64 @llvm.smin.i64(i64 %v85, i64 %v90)
  %v92 = extractelement <4 x i64> %v81, i64 1
  %v93 = extractelement <4 x i64> %v81, i64 2
  %v94 = extractelement <4 x i64> %v81, i64 3
  %v95 = insertelement <4 x i64> poison, i64 %v91, i64 0
  %v96 = insertelement <4 x i64> %v95, i64 %v92, i64 1
  %v97 = insertelement <4 x i64> %v96, i64 %v93, i64 2
  %v98 = insertelement <4 x i64> %v97, i64 %v94, i64 3
  %v99 = call i64 @llvm.vector.reduce.smin.v4i64(<4 x i64> %v98)
  %v100 = load i64, ptr %v61, align 8
  %v101 = call i64 @llvm.smin.i64(i64 %v100, i64 %v99)
  store i64 %v101, ptr %v61, align 8
  %v102 = load i64, ptr %v61, align 8
  store i64 %v102, ptr %v104, align 8
  %v105 = add nuw nsw i64 %i.argmax_i0.8, 1
  %v106 = icmp slt i64 %v105, 3
  br i1 %v106, label %loop6, label %done7
done7:
  %v107 = call <4 x i64> @llvm.masked.load.v4i64.p0(ptr align 8 %v3, <4 x i1> <i1 true, i1 true, i1 true, i1 false>, <4 x i64> zeroinitializer)
  %v108 = sub <4 x i64> splat (i64 0), %v107
  call void @llvm.masked.store.v4i64.p0(<4 x i64> %v108, ptr align 8 %v5, <4 x i1> <i1 true, i1 true, i1 true, i1 false>)
  ret i32 0
}
declare <4 x float> @llvm.masked.load.v4f32.p0(ptr, <4 x i1>, <4 x float>)
declare <4 x i64> @llvm.masked.load.v4i64.p0(ptr, <4 x i1>, <4 x i64>)
declare <4 x i64> @llvm.smin.v4i64(<4 x i64>, <4 x i64>)
declare float @llvm.vector.reduce.fmax.v4f32(<4 x float>)
declare i1 @llvm.vector.reduce.or.v4i1(<4 x i1>)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.vector.reduce.smin.v4i64(<4 x i64>)
declare void @llvm.masked.store.v4i64.p0(<4 x i64>, ptr, <4 x i1>)
